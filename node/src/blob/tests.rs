//! Blobs on a disk, and in a directory that two hosts share.

use std::sync::Arc;

use posthouse_shared::durable::simulated::SimulatedDisk;
use posthouse_shared::durable::{CrashPoints, Files};

use super::*;

fn blobs(data: &Path, store: Option<&BlobStore>) -> Blobs {
    Blobs::open(Files::real(), data.join("blobs"), &Limits::default(), store.cloned())
}

fn shared(dir: &Path) -> BlobStore {
    BlobStore::open(&format!("file://{}", dir.display()), &[]).unwrap()
}

fn brought(blobs: &Blobs, blob: &BlobRef) -> Brought {
    for _ in 0..2_000 {
        match blobs.bring(blob) {
            Brought::Coming => std::thread::sleep(std::time::Duration::from_millis(5)),
            other => return other,
        }
    }
    panic!("it never comes");
}

#[test]
fn what_was_put_survives_a_power_loss_whole_and_under_its_hash() {
    for seed in 0..50 {
        let disk = SimulatedDisk::new();
        let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
        files.create_dirs(Path::new("/data")).unwrap();
        let open = || Blobs::open(files.clone(), "/data/blobs".into(), &Limits::default(), None);
        let body = vec![b'x'; 300_000];
        let blob = open().put(&body).unwrap();
        disk.power_loss(seed);
        assert_eq!(open().read(&blob).unwrap(), body, "seed {seed}");
        // A second time is the same, and what broke on the disk meanwhile is mended by it.
        files.replace(&open().path(&blob).unwrap(), b"broken").unwrap();
        assert!(matches!(open().read(&blob), Err(BlobError::Corrupt { .. })));
        assert_eq!(open().put(&body).unwrap(), blob);
        disk.power_loss(seed);
        assert_eq!(open().read(&blob).unwrap(), body);
    }
}

#[test]
fn another_host_gets_a_body_through_the_shared_store_checked_and_on_its_own_disk() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("share");
    std::fs::create_dir(&dir).unwrap();
    let store = shared(&dir);
    let (alpha, beta) = (temp.path().join("alpha"), temp.path().join("beta"));
    let (alpha, beta_blobs) = (blobs(&alpha, Some(&store)), blobs(&beta, Some(&store)));
    let body = "ä".repeat(200_000).into_bytes();
    let blob = alpha.put(&body).unwrap();
    assert!(matches!(
        brought(&beta_blobs, &blob),
        Brought::Failed(BlobError::Store(StoreError::NotFound { .. }))
    ));
    alpha.share(&blob).unwrap();
    alpha.share(&blob).unwrap();
    assert!(matches!(brought(&beta_blobs, &blob), Brought::Here));
    drop(store);
    assert_eq!(blobs(&beta, None).read(&blob).unwrap(), body);
    assert_eq!(blobs(&beta, None).text(&blob, 1_001).unwrap(), "ä".repeat(500));

    // What the store has is not what it should be: nothing of it is kept.
    let other = alpha.put(b"what was meant").unwrap();
    alpha.share(&other).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.join("blobs").join(&other.sha256))
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"WHAT"))
        .unwrap();
    assert!(matches!(brought(&beta_blobs, &other), Brought::Failed(BlobError::Corrupt { .. })));
    assert!(matches!(beta_blobs.read(&other), Err(BlobError::Missing { .. })));
}

#[test]
fn a_body_over_the_limit_a_name_that_is_none_and_a_missing_store_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let limits = Limits { blob_bytes: 10, ..Limits::default() };
    let small = Blobs::open(Files::real(), temp.path().join("blobs"), &limits, None);
    assert_eq!(small.put(b"12345678901").unwrap_err().refusal().code, Code::MessageTooLarge);
    let fits = small.put(b"1234567890").unwrap();
    assert_eq!(small.share(&fits).unwrap_err().refusal().code, Code::NoBlobStore);
    let elsewhere = BlobRef { sha256: "../../../etc/passwd".to_owned(), bytes: 1 };
    assert!(matches!(small.read(&elsewhere), Err(BlobError::BadName { .. })));
    assert!(matches!(small.bring(&elsewhere), Brought::Failed(BlobError::BadName { .. })));
    let unknown = BlobRef { sha256: "0".repeat(64), bytes: 1 };
    assert!(matches!(small.bring(&unknown), Brought::Failed(BlobError::NoStore { .. })));
}

#[test]
fn a_wrong_address_is_refused_at_once_and_says_what_is_wrong_without_secrets() {
    for (url, why) in [
        ("bucket", "not an address"),
        ("gopher://bucket", "not a kind of store"),
        ("file:///no/such/directory", "is not a directory that is there"),
        ("s3://", "names no bucket"),
        ("s3://bucket?endpiont=http://x", "there are endpoint, region"),
        ("s3://bucket?endpoint=x:8333", "is not http:// or https://"),
        ("s3://key:secret@bucket/p", "it holds credentials"),
    ] {
        let error = BlobStore::open(url, &[]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(why), "{url}: {text}");
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(error.refusal().code, Code::BadConfig);
    }
    assert_eq!(
        BlobStore::open("s3://bucket/deep/prefix?region=x", &[]).unwrap().name(),
        "s3://bucket/deep/prefix"
    );
}
