# From lines of wc -lc to a table by language, largest first, and a row with all.

BEGIN {
    split("rs Rust|toml TOML|md Markdown|sh Shell|bash Shell|awk Awk|c C|h C|cc C++|cpp C++|cxx C++|hpp C++|hh C++|" \
        "py Python|js JavaScript|mjs JavaScript|ts TypeScript|tsx TypeScript|jsx JavaScript|go Go|java Java|kt Kotlin|" \
        "rb Ruby|pl Perl|pm Perl|php PHP|cs C#|swift Swift|scala Scala|hs Haskell|ml OCaml|lua Lua|sql SQL|html HTML|" \
        "htm HTML|css CSS|scss CSS|json JSON|jsonl JSON|yaml YAML|yml YAML|xml XML|txt Text|rst Text|proto Protobuf|" \
        "lock Lock file", pairs, "|")
    for (i in pairs) language[substr(pairs[i], 1, index(pairs[i], " ") - 1)] = substr(pairs[i], index(pairs[i], " ") + 1)
}

# wc's own sums ("total") are not paths, and are left out: there may be several.
match($0, /^ *[0-9]+ +[0-9]+ +\.\//) {
    name = substr($0, RLENGTH + 1)
    sub(/.*\//, "", name)
    kind = "other"
    if (match(name, /.\.[^.]+$/)) {
        extension = tolower(substr(name, RSTART + 2))
        if (extension in language) kind = language[extension]
    }
    files[kind]++; lines[kind] += $1; bytes[kind] += $2
    all_files++; all_lines += $1; all_bytes += $2
}

END {
    printf "%-12s %8s %10s %12s\n", "language", "files", "lines", "bytes"
    for (kind in files) left++
    for (; left > 0; left--) {
        largest = ""
        for (kind in files) {
            if (largest == "" || lines[kind] > lines[largest] || (lines[kind] == lines[largest] && kind < largest)) largest = kind
        }
        row(largest, files[largest], lines[largest], bytes[largest])
        delete files[largest]
    }
    row("all", all_files, all_lines, all_bytes)
}

function row(kind, files, lines, bytes) { printf "%-12s %8d %10.0f %12.0f\n", kind, files, lines, bytes }
