//! A small source tree to audit: known counts, and names that break careless scripts.

use std::fs;
use std::path::Path;

/// What an audit of the tree must find.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// Files that count.
    pub files: u64,
    /// Their newlines.
    pub lines: u64,
    /// Files, lines and bytes of Rust.
    pub rust: (u64, u64, u64),
    /// Lines that say so.
    pub todo: u64,
    /// Relative links, and the broken among them.
    pub links: (u64, u64),
}

/// Makes the tree in an empty directory.
pub fn make(dir: &Path) -> Counts {
    // Put together here, so that an audit of this repository does not count the words of this file.
    let (todo, fixme) = (concat!("TO", "DO"), concat!("FIX", "ME"));
    let file = |path: &str, text: &str| {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("make a directory");
        fs::write(path, text).expect("write a file");
    };
    file("src/main.rs", &format!("fn main() {{}}\n// {todo}: more\n"));
    file("src/two words.rs", &format!("// {fixme} {todo}\n\n"));
    file("src/no newline at end.rs", &format!("// {todo}"));
    file("src/line\nbreak.rs", &format!("// {todo}\n"));
    file("src/a=b.rs", "\n");
    file("-n", "not an option\n");
    file("src/nul.bin", &format!("{todo}\0\n"));
    file("README.md", "[here](src/main.rs) [spaced](<src/two words.rs>) [coded](src/two%20words.rs#top)\n");
    file(
        "docs/odd (1).md",
        "[up](../README.md) [gone](gone.md) ![none](img/none.png) [web](https://example.org)\n",
    );
    file("docs/code.md", "```\n[no](link)\n```\n`[no](link)` [self](#part)\n[ref]: ./missing.md \"title\"\n");
    // None of these count.
    file("target/debug/made.rs", &format!("// {todo}\n"));
    file("sub/target/made.md", "[gone](gone.md)\n");
    file(".git/config", &format!("{todo}\n"));
    // A file of that name does.
    file("docs/target", "a file\n");
    let rust =
        ["src/main.rs", "src/two words.rs", "src/no newline at end.rs", "src/line\nbreak.rs", "src/a=b.rs"];
    let bytes = rust.iter().map(|path| fs::metadata(dir.join(path)).expect("it was just made").len()).sum();
    Counts { files: 11, lines: 16, rust: (5, 6, bytes), todo: 5, links: (7, 3) }
}
