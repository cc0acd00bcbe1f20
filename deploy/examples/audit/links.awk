# The relative links of one Markdown file, a line each: line number, tab, target without its fragment, decoded.
# Inline links and images, and link definitions. Fenced code and code spans are no links.

/^ ? ? ?(```|~~~)/ {
    mark = substr($0, match($0, /[`~]/), 1)
    if (fence == "") { fence = mark; next }
    if (fence == mark) { fence = ""; next }
}

fence != "" { next }

{
    rest = $0
    gsub(/`[^`]*`/, "", rest)
    if (match(rest, /^ ? ? ?\[[^]]+\]: */)) {
        target(substr(rest, RLENGTH + 1))
        next
    }
    while (match(rest, /\]\([ ]*/)) {
        rest = substr(rest, RSTART + RLENGTH)
        target(rest)
    }
}

function target(text) {
    if (substr(text, 1, 1) == "<") {
        text = substr(text, 2)
        if (!index(text, ">")) return
        text = substr(text, 1, index(text, ">") - 1)
    } else {
        text = bare(text)
    }
    if (text ~ /^[A-Za-z][-A-Za-z0-9+.]*:/ || text ~ /^\// || text ~ /^#/ || text == "") return
    sub(/[#?].*$/, "", text)
    print FNR "\t" decoded(text)
}

# Up to a blank or the bracket that closes the link; brackets inside come in pairs.
function bare(text,    i, c, depth) {
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == " " || c == "\t") break
        if (c == "(") depth++
        if (c == ")" && --depth < 0) break
    }
    return substr(text, 1, i - 1)
}

function decoded(text,    out, hex) {
    out = ""
    while (match(text, /%[0-9A-Fa-f][0-9A-Fa-f]/)) {
        hex = tolower(substr(text, RSTART + 1, 2))
        out = out substr(text, 1, RSTART - 1) sprintf("%c", digit(substr(hex, 1, 1)) * 16 + digit(substr(hex, 2, 1)))
        text = substr(text, RSTART + 3)
    }
    return out text
}

function digit(c) { return index("0123456789abcdef", c) - 1 }
