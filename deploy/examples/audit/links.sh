#!/bin/sh
# Relative links in the Markdown files of a tree whose target is not there: links.sh DIR.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tree.sh"
enter "${1:?directory}"

# Prints one line for each link: `ok`, or `broken FILE:LINE -> TARGET`.
check='
    for file do
        awk -f "$0/links.awk" "$file" | while IFS="	" read -r line target; do
            if [ -e "${file%/*}/$target" ]; then
                echo ok
            else
                printf "broken %s:%s -> %s\n" "$(printf %s "$file" | tr "\n" "?")" "$line" "$target"
            fi
        done
    done'

files \( -name '*.md' -o -name '*.markdown' \) -exec sh -c "$check" "$here" {} + | awk '
    { links++ }
    sub(/^broken /, "") { broken++; if (broken <= 100) list = list "  " $0 "\n" }
    END {
        printf "%d broken of %d relative links\n%s", broken, links, list
        if (broken > 100) printf "  and %d more\n", broken - 100
    }'
