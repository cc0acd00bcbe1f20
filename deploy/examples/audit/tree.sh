# Which files count: all regular ones below the directory but those in directories named .git or target. Sourced.
# shellcheck shell=sh

LC_ALL=C
export LC_ALL
newline='
'

# enter DIR: goes there, so that every path begins with ./ and cannot be taken for an option or an assignment.
enter() {
    cd -- "$1" 2>/dev/null || {
        echo "$0: cannot enter directory $1 (from $(pwd))" >&2
        exit 1
    }
}

# files EXPRESSION...: find over the files that count.
files() {
    find . -type d \( -name .git -o -name target \) -prune -o -type f "$@"
}
