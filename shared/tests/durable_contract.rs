//! What every disk must do. All disks run the same suite; what happens at a loss of power only the simulated
//! one can show here (real file systems: `tests/`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use posthouse_shared::durable::simulated::SimulatedDisk;
use posthouse_shared::durable::{CrashPoints, Disk, DurableError, Files, RealDisk};

fn on_both(check: impl Fn(&dyn Disk, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    check(&RealDisk, dir.path());
    let disk = SimulatedDisk::new();
    disk.create_dir(Path::new("/data")).unwrap();
    check(&disk, Path::new("/data"));
}

fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn files_are_written_replaced_read_renamed_and_removed() {
    on_both(|disk, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        disk.write(&a, b"one").unwrap();
        disk.write_synced(&a, b"first").unwrap();
        disk.write(&b, b"second").unwrap();
        assert_eq!(disk.read(&a, 5).unwrap(), b"first");
        assert_eq!(kind(disk.read(&a, 4)), ErrorKind::FileTooLarge);
        disk.rename(&a, &b).unwrap();
        assert!(!disk.exists(&a) && disk.exists(&b));
        assert_eq!(disk.read(&b, 100).unwrap(), b"first");
        disk.rename(&b, &b).unwrap();
        assert_eq!(kind(disk.rename(&a, &b)), ErrorKind::NotFound);
        disk.remove(&b).unwrap();
        assert_eq!(kind(disk.remove(&b)), ErrorKind::NotFound);
        assert_eq!(kind(disk.read(&b, 100)), ErrorKind::NotFound);
        assert_eq!(kind(disk.write(&dir.join("none/a"), b"")), ErrorKind::NotFound);
    });
}

#[test]
fn directories_are_made_listed_and_moved_with_what_is_in_them() {
    on_both(|disk, dir| {
        let (d, e) = (dir.join("d"), dir.join("e"));
        disk.create_dir(&d).unwrap();
        disk.create_dir(&d).unwrap();
        for name in ["x", "y"] {
            disk.write(&d.join(name), name.as_bytes()).unwrap();
        }
        disk.rename(&d, &e).unwrap();
        disk.sync_dir(dir).unwrap();
        disk.sync_file_system(dir).unwrap();
        let mut names = disk.list(&e).unwrap();
        names.sort();
        assert_eq!(names, ["x", "y"]);
        let mut visited = Vec::new();
        disk.visit(&e, &mut |name| visited.push(name.to_owned())).unwrap();
        visited.sort();
        assert_eq!(visited, names);
        assert_eq!(kind(disk.list(&d)), ErrorKind::NotFound);
        assert_eq!(kind(disk.read(&e, 10)), ErrorKind::IsADirectory);
        disk.write(&dir.join("f"), b"").unwrap();
        assert_eq!(kind(disk.create_dir(&dir.join("f"))), ErrorKind::AlreadyExists);
        assert_eq!(kind(disk.list(&dir.join("f"))), ErrorKind::NotADirectory);
    });
}

#[test]
fn a_log_grows_at_its_end_and_is_cut() {
    on_both(|disk, dir| {
        let path = dir.join("log");
        let mut log = disk.open_append(&path).unwrap();
        assert!(log.is_empty().unwrap());
        log.append(b"one\n").unwrap();
        log.append(b"two\n").unwrap();
        log.sync().unwrap();
        log.truncate(4).unwrap();
        log.append(b"three\n").unwrap();
        assert_eq!(log.len().unwrap(), 10);
        drop(log);
        assert_eq!(disk.open_append(&path).unwrap().len().unwrap(), 10);
        assert_eq!(disk.read(&path, 100).unwrap(), b"one\nthree\n");
    });
}

#[test]
fn locks_can_be_taken_again_after_they_were_let_go() {
    on_both(|disk, dir| {
        let lock = disk.open_lock(&dir.join("lock")).unwrap();
        assert!(lock.try_lock().unwrap());
        lock.unlock();
        lock.lock().unwrap();
        lock.unlock();
    });
}

fn simulated() -> (SimulatedDisk, Files) {
    let disk = SimulatedDisk::new();
    let files = Files::new(Arc::new(disk.clone()), CrashPoints::none());
    files.create_dirs(Path::new("/data/tmp")).unwrap();
    files.create_dirs(Path::new("/data/ready")).unwrap();
    (disk, files)
}

const TMP: &str = "/data/tmp/m";
const TO: &str = "/data/ready/m";

#[test]
fn what_was_placed_survives_every_loss_of_power() {
    for seed in 0..200 {
        let (disk, files) = simulated();
        files.place(Path::new(TMP), Path::new(TO), b"content").unwrap();
        disk.power_loss(seed);
        assert_eq!(files.read(Path::new(TO), 100).unwrap(), b"content", "SEED={seed}");
    }
}

#[test]
fn each_step_left_away_loses_something_under_some_seed() {
    let lost = |steps: fn(&SimulatedDisk)| {
        (0..200).any(|seed| {
            let (disk, _) = simulated();
            steps(&disk);
            disk.power_loss(seed);
            disk.read(Path::new(TO), 100).ok() != Some(b"content".to_vec())
        })
    };
    assert!(
        lost(|disk| {
            disk.write(Path::new(TMP), b"content").unwrap();
            disk.rename(Path::new(TMP), Path::new(TO)).unwrap();
            disk.sync_dir(Path::new("/data/ready")).unwrap();
        }),
        "no sync of the file"
    );
    assert!(
        lost(|disk| {
            disk.write_synced(Path::new(TMP), b"content").unwrap();
            disk.rename(Path::new(TMP), Path::new(TO)).unwrap();
        }),
        "no sync of the directory"
    );
    assert!(
        !lost(|disk| {
            disk.write(Path::new(TMP), b"content").unwrap();
            disk.sync_file_system(Path::new("/data")).unwrap();
            disk.rename(Path::new(TMP), Path::new(TO)).unwrap();
            disk.sync_dir(Path::new("/data/ready")).unwrap();
        }),
        "syncfs, rename, sync is enough"
    );
}

#[test]
fn replace_leaves_the_old_or_the_new_content_at_every_crash_point() {
    let names = {
        let points = CrashPoints::recording();
        let files = Files::new(Arc::new(simulated().0), points.clone());
        files.replace(Path::new("/data/f"), b"new").unwrap();
        points.passed()
    };
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        for seed in 0..50 {
            let (disk, files) = simulated();
            files.replace(Path::new("/data/f"), b"old").unwrap();
            let dying = disk.clone();
            let armed = Files::new(Arc::new(disk.clone()), CrashPoints::at(name, move |_| dying.cut()));
            let _either = armed.replace(Path::new("/data/f"), b"new");
            disk.power_loss(seed);
            let content = files.read(Path::new("/data/f"), 100).unwrap();
            assert!(content == b"old" || content == b"new", "{name} SEED={seed} {content:?}");
        }
    }
}

#[test]
fn a_full_or_read_only_disk_is_a_typed_error_and_leaves_nothing_half_written() {
    let (disk, files) = simulated();
    disk.set_room(Some(3));
    let full = files.place(Path::new(TMP), Path::new(TO), b"content");
    assert!(matches!(full, Err(DurableError::NoSpace { .. })), "{full:?}");
    assert!(!files.exists(Path::new(TMP)) && !files.exists(Path::new(TO)));
    disk.set_room(None);
    disk.set_read_only(true);
    let refused = files.place(Path::new(TMP), Path::new(TO), b"content");
    assert!(matches!(refused, Err(DurableError::ReadOnly { .. })), "{refused:?}");
    disk.set_read_only(false);
    files.place(Path::new(TMP), Path::new(TO), b"content").unwrap();
}

#[test]
fn a_log_whose_disk_was_full_holds_whole_records_only() {
    let (disk, files) = simulated();
    let mut log = files.open_log(Path::new("/data/log")).unwrap();
    log.append(b"one\n").unwrap();
    disk.set_room(Some(2));
    assert!(matches!(log.append(b"two\n"), Err(DurableError::NoSpace { .. })));
    disk.set_room(None);
    log.append(b"three\n").unwrap();
    disk.power_loss(1);
    assert_eq!(files.read(Path::new("/data/log"), 100).unwrap(), b"one\nthree\n");
}
