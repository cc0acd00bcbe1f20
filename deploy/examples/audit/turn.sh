# What lead.sh and teammate.sh share: the turn's JSON, once from stdin, and a look into it. Sourced; sets `turn`.
# shellcheck shell=sh

LC_ALL=C
export LC_ALL
turn=$(cat)

# field PATH: prints the scalar at PATH of the turn's JSON, as task.id or messages.0.kind; 1 if there is none.
field() {
    printf '%s\n' "$turn" | awk -v want="$1" -f "$here/json.awk"
}

# has_kind KIND: whether a message of that kind is in the turn.
has_kind() {
    number=0
    while kind=$(field "messages.$number.kind"); do
        [ "$kind" = "$1" ] && return 0
        number=$((number + 1))
    done
    return 1
}
