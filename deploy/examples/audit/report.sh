#!/bin/sh
# The report, from the results of the tasks that blocked it: report.sh DIR, the turn's JSON on stdin.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/turn.sh"

printf '# Audit of %s\n' "${1:?directory}"
number=0
while id=$(field "task.blocked_by.$number.id"); do
    case $id in
    size) title='Size by language' ;;
    todo) title='TODO and FIXME' ;;
    links) title='Broken relative links' ;;
    *) title=$id ;;
    esac
    result=$(field "task.blocked_by.$number.result") || {
        echo "report.sh: task $id came without a result" >&2
        exit 1
    }
    printf '\n## %s\n\n%s\n' "$title" "$result"
    number=$((number + 1))
done
if [ "$number" -eq 0 ]; then
    echo "report.sh: nothing to report from" >&2
    exit 1
fi
