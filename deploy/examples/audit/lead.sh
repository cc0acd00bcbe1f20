#!/bin/sh
# The audit's lead: briefs the teammates named as arguments when its own first task comes, then notes what it hears.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/turn.sh"

# The nth id made from an id (a UUID of version 8, so never the one it is made from): a turn that was cut off and
# is run again says the same under the same ids, and nobody hears it twice.
derived() {
    printf '%s' "$1" | sed "s/^\\(.\\{14\\}\\)./\\18/; s/..\$/$(printf %02x "$2")/"
}

number=0
while kind=$(field "messages.$number.kind"); do
    case $kind in
    task)
        id=$(field "messages.$number.id")
        place=0
        for name in "$@"; do
            place=$((place + 1))
            posthouse send "$name" "The board is open: take what fits your role; no role means anybody." \
                --id "$(derived "$id" "$place")" >&2
        done
        echo "briefed: $*"
        ;;
    shutdown_request)
        echo "agreed"
        ;;
    *)
        echo "noted: $kind from $(field "messages.$number.from.agent" || field "messages.$number.from" || echo '?')"
        ;;
    esac
    number=$((number + 1))
done
