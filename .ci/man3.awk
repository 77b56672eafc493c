# Writes manual pages of the public functions, section 3, from the headers' comments: awk -v folder=DIR -v version=V -f
# man3.awk HEADER... A page is a comment with the declarations below it, up to a blank line or the next comment. Each
# function and macro in it has the page, or a file that includes it. Declarations without a comment show the section's.
# A declaration with DB_AT is shown as a call of its macro, without the location of the call.

function roff(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  if (text ~ /^[.']/) text = "\\&" text
  return text
}

# The function or macro that a declaration names, "" for others.
function named(line,   name) {
  if (line !~ /db_[a-z0-9_]+\(/ || line ~ /^typedef/) return ""
  name = line
  if (line ~ /^#define/) {
    if (line !~ /^#define db_[a-z0-9_]+\(/) return ""
    sub(/^#define /, "", name)
  } else {
    match(name, /db_[a-z0-9_]+\(/)
    name = substr(name, RSTART)
  }
  sub(/\(.*/, "", name)
  sub(/_at$/, "", name)
  return name
}

function flush_page(   page, i, n, line, file) {
  if (names && doc == "") doc = about == "" ? section "." : about
  if (names) {
    page = name[1]
    file = folder "/" page ".3"
    printf ".TH %s 3 \"\" \"doorbell %s\" \"Doorbell's functions\"\n.SH NAME\n", page, version >file
    for (i = 1; i <= names; i++) printf "%s%s", name[i], i < names ? ", " : "" >file
    printf " \\- %s\n.SH SYNOPSIS\n.nf\n#include <doorbell/%s>\n\n",
      section == "" ? "Doorbell" : roff(section), header >file
    printf "%s%s.fi\n.SH DESCRIPTION\n", types == "" ? "" : types "\n", synopsis >file
    n = split(doc, line, "\n")
    for (i = 1; i <= n; i++)
      if (line[i] ~ /^ *$/) print ".PP" >file
      else print roff(line[i]) >file
    if (notes != "") printf "%s", notes >file
    printf ".SH SEE ALSO\n.BR doorbell (1);\n" >file
    printf "the rules of ownership, errors and threads at the head of <doorbell/doorbell.h> " >file
    print "and <doorbell/hcq.h>" >file
    close(file)
    for (i = 2; i <= names; i++) {
      file = folder "/" name[i] ".3"
      printf ".so man3/%s.3\n", page >file
      close(file)
    }
  }
  names = 0
  synopsis = notes = doc = types = ""
  delete has
}

function add_name(n) {
  if (n == "" || n in has || n in written) return
  has[n] = written[n] = 1
  name[++names] = n
}

function declare(text,   n, comment) {
  if (match(text, /\/\*.*\*\/ *$/)) {
    comment = substr(text, RSTART + 2, RLENGTH - 4)
    sub(/\*\/ *$/, "", comment)
    gsub(/^ +| +$/, "", comment)
    sub(/ *\/\*.*\*\/ *$/, "", text)
  }
  n = named(text)
  add_name(n)
  if (comment != "" && n != "") notes = notes ".TP\n.B " n "\n" roff(comment) "\n"
  if (text ~ /^#define/) {
    if (text !~ /^#define db_/) return
    sub(/^#define /, "", text)
    sub(/\).*/, ")", text)
    macro[n] = 1
    synopsis = synopsis roff(text) "\n"
  } else {
    if (n in macro && text ~ /_at\(DB_AT/) return # the macro's line says it
    sub(/_at\(DB_AT(, )?/, "(", text)
    sub(/ *\{ return.*$/, ";", text)
    synopsis = synopsis roff(text) "\n"
  }
}

FNR == 1 {
  flush_page()
  header = FILENAME
  sub(/.*\//, "", header)
  section = about = ""
}
# The line continues a declaration.
begun != "" {
  sub(/^ +/, "")
  sub(/ *\\$/, "", begun)
  begun = begun " " $0
  if ($0 !~ /\\$/ && (begun ~ /^#/ || begun ~ /[;}] *(\/\*.*)?$/)) { declare(begun); begun = "" }
  next
}
in_comment {
  text = $0
  ended = sub(/ *\*\/.*$/, "", text)
  sub(/^ \* ?/, "", text)
  if (in_section) about = about "\n" text
  else doc = doc "\n" text
  in_comment = !ended
  if (ended) in_section = 0
  next
}
/^\/\* ----/ {
  flush_page()
  section = $0
  gsub(/^\/\* -+ *| *-+ *(\*\/)?$/, "", section)
  about = section
  sub(/[.:;,] .*/, "", section)
  in_section = in_comment = $0 !~ /\*\//
  next
}
/^\/\*/ {
  if (names) flush_page()
  doc = $0
  ended = sub(/ *\*\/.*$/, "", doc)
  sub(/^\/\* ?/, "", doc)
  in_comment = !ended
  next
}
/^$/ { flush_page(); next }
# Types at the beginning of a group of declarations.
in_type || /^(enum|struct|typedef)[^;]*\{/ {
  types = types roff($0) "\n"
  in_type = $0 !~ /^\}/ && $0 !~ /\};? *(\/\*.*)?$/
  next
}
/^(#define db_|[a-z].*\()/ && !/^(typedef|extern)/ {
  if ($0 ~ /\\$/ || ($0 !~ /^#/ && $0 !~ /[;}] *(\/\*.*\*\/)? *$/)) begun = $0
  else declare($0)
  next
}
END { flush_page() }
