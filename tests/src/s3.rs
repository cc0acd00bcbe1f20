//! A real S3 server (SeaweedFS) for one test: free ports, a directory of its own, killed at the end.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::skip::skip;

/// It is ready in 3 to 4 s; other builds may have the processor.
const READY: Duration = Duration::from_secs(60);

/// A running server.
pub struct S3 {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

/// The server's binary: POSTHOUSE_WEED, else in PATH, else where `tests/run --install` puts it.
fn binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("POSTHOUSE_WEED") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = crate::repository::top().join("target/tools");
    std::env::split_paths(&path).chain([tools]).map(|dir| dir.join("weed")).find(|file| file.is_file())
}

fn free_port() -> u16 {
    // weed takes the port of its gRPC, 10,000 above, for granted.
    loop {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = bound.local_addr().expect("its address").port();
        if port < 55_000 && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 10_000)).is_ok() {
            return port;
        }
    }
}

impl S3 {
    /// Starts one; where there is none the test is skipped, and says so.
    pub fn start() -> Option<Self> {
        let Some(binary) = binary() else {
            skip("an S3 server (weed of SeaweedFS) is missing (tests/run --install)");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory for the S3 server");
        let port = free_port();
        let log = std::fs::File::create(dir.path().join("log")).expect("a log");
        let child = Command::new(binary)
            .args(["server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=50"])
            .arg(format!("-dir={}", dir.path().display()))
            .arg(format!("-master.port={}", free_port()))
            .arg(format!("-volume.port={}", free_port()))
            .arg(format!("-filer.port={}", free_port()))
            .arg(format!("-s3.port={port}"))
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start weed");
        let server = Self { child, port, _dir: dir };
        let until = Instant::now() + READY;
        while !server.makes_bucket("posthouse") {
            assert!(Instant::now() < until, "the S3 server is not ready after {READY:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(server)
    }

    /// The address of a prefix in its bucket, as `blob_store` takes it.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://posthouse/{prefix}?endpoint=http://127.0.0.1:{}&region=us-east-1", self.port)
    }

    fn makes_bucket(&self, name: &str) -> bool {
        use std::io::{Read, Write};
        let address = (Ipv4Addr::LOCALHOST, self.port);
        let Ok(mut stream) = TcpStream::connect(address) else { return false };
        let _bounded = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let request = format!(
            "PUT /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let mut answer = String::new();
        let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        asked.is_ok() && answer.starts_with("HTTP/1.1 200")
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
