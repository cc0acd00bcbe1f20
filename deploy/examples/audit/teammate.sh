#!/bin/sh
# A teammate of the audit: one process a turn. teammate.sh DIR, the turn's JSON on stdin, the result on stdout.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/turn.sh"
dir=${1:?directory}

task=${POSTHOUSE_TASK:-$(field task.id || :)}
case $task in
size | todo | links)
    exec sh "$here/$task.sh" "$dir"
    ;;
report)
    printf '%s\n' "$turn" | exec sh "$here/report.sh" "$dir"
    ;;
'')
    if has_kind shutdown_request; then
        echo "agreed"
    else
        echo "ready"
    fi
    ;;
*)
    echo "teammate.sh: no way to do task $task" >&2
    exit 1
    ;;
esac
