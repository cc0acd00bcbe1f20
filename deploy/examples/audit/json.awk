# One scalar out of a JSON document, decoded: awk -v want=task.blocked_by.0.id -f json.awk < document
# Objects are entered by key, arrays by number. Exit 0: printed as it is, nothing added. 1: not there (or null,
# or not a scalar). 2: not JSON. Any POSIX awk; LC_ALL=C, so that a character is a byte.

{ text = text $0 "\n" }

END {
    at = 1
    blank()
    value("")
    blank()
    if (at <= length(text)) fail()
    if (!found) exit 1
    printf "%s", answer
}

function fail() { broken = 1; print "json.awk: not JSON at byte " at > "/dev/stderr"; exit 2 }

function blank() { while (index(" \t\r\n", substr(text, at, 1)) && at <= length(text)) at++ }

function scalar(path, decoded) { if (path == want) { found = 1; answer = decoded } }

function value(path,    c, word) {
    c = substr(text, at, 1)
    if (c == "{") { object(path); return }
    if (c == "[") { array(path); return }
    if (c == "\"") { scalar(path, string()); return }
    if (!match(substr(text, at, 64), /^[-+.0-9A-Za-z]+/)) fail()
    word = substr(text, at, RLENGTH)
    at += RLENGTH
    if (word == "null") return
    if (word != "true" && word != "false" && word !~ /^-?[0-9]/) fail()
    scalar(path, word)
}

function below(path, key) { return path == "" ? key : path "." key }

function object(path,    key) {
    at++
    blank()
    if (substr(text, at, 1) == "}") { at++; return }
    for (;;) {
        blank()
        if (substr(text, at, 1) != "\"") fail()
        key = string()
        blank()
        if (substr(text, at, 1) != ":") fail()
        at++
        blank()
        value(below(path, key))
        blank()
        if (substr(text, at, 1) == "}") { at++; return }
        if (substr(text, at, 1) != ",") fail()
        at++
    }
}

function array(path,    number) {
    at++
    blank()
    if (substr(text, at, 1) == "]") { at++; return }
    for (number = 0; ; number++) {
        blank()
        value(below(path, number))
        blank()
        if (substr(text, at, 1) == "]") { at++; return }
        if (substr(text, at, 1) != ",") fail()
        at++
    }
}

# Takes pieces without escapes whole, so that a long text costs one step for each escape.
function string(    out, piece, c) {
    at++
    out = ""
    for (;;) {
        piece = substr(text, at, 512)
        if (match(piece, /["\\]/)) {
            out = out substr(piece, 1, RSTART - 1)
            at += RSTART - 1
        } else {
            if (piece == "") fail()
            out = out piece
            at += length(piece)
            continue
        }
        c = substr(text, at, 1)
        at++
        if (c == "\"") return out
        c = substr(text, at, 1)
        at++
        if (c == "n") out = out "\n"
        else if (c == "t") out = out "\t"
        else if (c == "r") out = out "\r"
        else if (c == "b") out = out "\b"
        else if (c == "f") out = out "\f"
        else if (c == "u") out = out unicode()
        else if (c == "\"" || c == "\\" || c == "/") out = out c
        else fail()
    }
}

function four(    number, digit, i) {
    number = 0
    for (i = 0; i < 4; i++) {
        digit = index("0123456789abcdef", tolower(substr(text, at, 1)))
        if (!digit || at > length(text)) fail()
        number = number * 16 + digit - 1
        at++
    }
    return number
}

# A character as UTF-8. Half a surrogate pair, and NUL, which no awk holds, become U+FFFD.
function unicode(    code, low) {
    code = four()
    if (code >= 55296 && code < 56320 && substr(text, at, 2) == "\\u") {
        at += 2
        low = four()
        if (low >= 56320 && low < 57344) code = 65536 + (code - 55296) * 1024 + low - 56320
        else code = 65533
    }
    if (code == 0 || (code >= 55296 && code < 57344)) code = 65533
    if (code < 128) return sprintf("%c", code)
    if (code < 2048) return sprintf("%c%c", 192 + int(code / 64), 128 + code % 64)
    if (code < 65536) return sprintf("%c%c%c", 224 + int(code / 4096), 128 + int(code / 64) % 64, 128 + code % 64)
    return sprintf("%c%c%c%c", 240 + int(code / 262144), 128 + int(code / 4096) % 64, 128 + int(code / 64) % 64, 128 + code % 64)
}
