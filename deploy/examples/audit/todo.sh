#!/bin/sh
# Lines of a tree that say TODO or FIXME: todo.sh DIR. Prints how many, the first of them, and in which files.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tree.sh"
enter "${1:?directory}"
shown=20

# One count a file, and the file's name where it can stand on a line. grep -c counts in binary files too.
counts() {
    files ! -path "*$newline*" -exec grep -E -c 'TODO|FIXME' /dev/null {} + || :
    files -path "*$newline*" -exec grep -E -c 'TODO|FIXME' {} \; | sed 's/^/(a name with a newline):/' || :
}

counts | awk -F: -v shown="$shown" '
    $NF > 0 {
        lines += $NF
        files++
        if (files <= shown) list = list sprintf("%6d  %s\n", $NF, substr($0, 1, length($0) - length($NF) - 1))
    }
    END {
        printf "%d lines in %d files\n%s", lines, files, list
        if (files > shown) printf "        and %d files more\n", files - shown
    }'
