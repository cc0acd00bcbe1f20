#!/bin/sh
# Files, lines and bytes of a tree, by language: size.sh DIR. A line is a newline, as for wc.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tree.sh"
enter "${1:?directory}"

# A path with a newline in it would look like two lines of wc: such files are counted one by one, and `|` stands
# for what comes before the last newline of their names.
{
    files ! -path "*$newline*" -exec wc -lc {} +
    files -path "*$newline*" -exec sh -c '
        for file do
            printf "%s ./|%s\n" "$(wc -lc < "$file" | tr -s " \n" " ")" "${file##*
}"
        done' sh {} +
} | awk -f "$here/languages.awk"
