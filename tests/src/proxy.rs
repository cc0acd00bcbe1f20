//! A TCP proxy in front of a server, for faults of the network: slow, cut, hanging, deaf one way. It changes no byte.
//!
//! Who connects while it is cut is turned away; who connects while it hangs waits. A connection lives until either side
//! ends it or it is cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Bytes pass at once.
    Fine,
    /// Each read passes after so long.
    Slow(Duration),
    /// No connection lives, and none is taken.
    Cut,
    /// Connections live; nothing passes, nothing is lost: it passes once this is over.
    Hang,
    /// As [`Weather::Hang`], from the client to the server only: it hears and is not heard.
    HangToServer,
    /// As [`Weather::Hang`], from the server to the client only: it is heard and does not hear.
    HangToClient,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

#[derive(Debug)]
struct Shared {
    weather: Mutex<Weather>,
    changed: Condvar,
    open: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

/// A running proxy. Its connections end with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts one on a free port in front of `server`, in fine weather.
    pub fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            weather: Mutex::new(Weather::Fine),
            changed: Condvar::new(),
            open: Mutex::new(Vec::new()),
            ended: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if own.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                // Whoever cannot be carried on sees a connection that ends.
                let _turned_away = own.take(&client, server);
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the weather; what was held goes on at once where it may.
    pub fn weather(&self, weather: Weather) {
        *self.shared.weather() = weather;
        if weather == Weather::Cut {
            self.shared.cut();
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.weather(Weather::Cut);
        // The listener's thread wakes up, and sees that it has ended.
        let _nobody_may_listen_any_more = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn weather(&self) -> std::sync::MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _gone_already = stream.shutdown(Shutdown::Both);
        }
    }

    fn take(self: &Arc<Self>, client: &TcpStream, server: SocketAddr) -> std::io::Result<()> {
        if *self.weather() == Weather::Cut {
            return client.shutdown(Shutdown::Both);
        }
        let server = TcpStream::connect(server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (to_server, to_client) =
            ((client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?));
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.push(client.try_clone()?);
            open.push(server);
        }
        // It was cut while the connection was made.
        if *self.weather() == Weather::Cut {
            self.cut();
        }
        for (way, (from, to)) in [(Way::ToServer, to_server), (Way::ToClient, to_client)] {
            let own = Arc::clone(self);
            thread::spawn(move || {
                own.pass(way, &from, &to);
                let _gone_already = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        Ok(())
    }

    fn pass(&self, way: Way, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = vec![0; 65_536];
        loop {
            let Ok(read) = from.read(&mut bytes) else { return };
            let Some(read) = bytes.get(..read).filter(|read| !read.is_empty()) else { return };
            if !self.may_pass(way) || to.write_all(read).is_err() {
                return;
            }
        }
    }

    /// Waits until bytes may pass this way; `false` if the connection is cut.
    fn may_pass(&self, way: Way) -> bool {
        let held = |weather: &mut Weather| match weather {
            Weather::Hang => true,
            Weather::HangToServer => way == Way::ToServer,
            Weather::HangToClient => way == Way::ToClient,
            Weather::Fine | Weather::Slow(_) | Weather::Cut => false,
        };
        let weather = self.changed.wait_while(self.weather(), held).unwrap_or_else(PoisonError::into_inner);
        let weather = *weather;
        if let Weather::Slow(pause) = weather {
            thread::sleep(pause);
        }
        weather != Weather::Cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A server that says back what it hears.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        address
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream
    }

    fn said_back(stream: &mut TcpStream) -> bool {
        let mut byte = [0];
        stream.read_exact(&mut byte).is_ok()
    }

    #[test]
    fn what_hangs_passes_afterwards_and_what_is_cut_ends() {
        let proxy = Proxy::start(echo()).unwrap();
        let mut stream = connect(&proxy);
        stream.write_all(b"a").unwrap();
        assert!(said_back(&mut stream));
        for held in [Weather::Hang, Weather::HangToServer, Weather::HangToClient] {
            proxy.weather(held);
            stream.write_all(b"b").unwrap();
            assert!(!said_back(&mut stream), "{held:?}");
            proxy.weather(Weather::Fine);
            assert!(said_back(&mut stream), "{held:?}");
        }
        proxy.weather(Weather::Slow(Duration::from_millis(50)));
        let started = Instant::now();
        stream.write_all(b"c").unwrap();
        assert!(said_back(&mut stream) && started.elapsed() >= Duration::from_millis(100));
        proxy.weather(Weather::Cut);
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        let mut turned_away = connect(&proxy);
        assert_eq!(turned_away.read(&mut [0]).unwrap_or(0), 0);
        proxy.weather(Weather::Fine);
        let mut again = connect(&proxy);
        again.write_all(b"d").unwrap();
        assert!(said_back(&mut again));
    }
}
