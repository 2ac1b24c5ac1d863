# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What the cli tests share. A test calls `start "$@"`, then checks, then `finish`.
set -u

start() {
  # shellcheck disable=SC2034 # for the test
  bin=$1 tool=$2
  tmp=$(mktemp -d)
  chmod 755 "$tmp"
  trap 'rm -rf "$tmp"' EXIT
  cd "$tmp" || exit 1
  checks=0
  errors=0
}

complain() {
  errors=$((errors + 1))
  echo "FAILED: $*"
}

# succeeds NAME COMMAND...
succeeds() {
  local name=$1
  shift
  checks=$((checks + 1))
  "$@" >out 2>err </dev/null || complain "$name: exit $?: $(head -c 300 err)"
}

# same NAME FILE FILE
same() {
  checks=$((checks + 1))
  cmp -s "$2" "$3" || complain "$1: $2 and $3 differ"
}

# shows NAME PATTERN: the last command printed it
shows() {
  checks=$((checks + 1))
  grep -Eq -- "$2" out || complain "$1: '$2' is not in: $(head -c 300 out)"
}

# json NAME EXPRESSION: it holds for the JSON d that the last command printed
json() {
  checks=$((checks + 1))
  python3 -c "import json; d = json.load(open('out')); assert $2, d" || complain "$1: $(head -c 300 out)"
}

# refuses NAME STATUS PATTERN COMMAND...: the command exits with STATUS, says why in one line on standard error that matches
# PATTERN, prints nothing else and leaves no new file behind.
refuses() {
  local name=$1 status=$2 pattern=$3 before after rc=0
  shift 3
  checks=$((checks + 1))
  : >out
  : >err
  before=$(ls -A)
  "$@" >out 2>err </dev/null || rc=$?
  after=$(ls -A)
  [ "$rc" = "$status" ] || complain "$name: exit $rc instead of $status"
  [ "$(wc -l <err)" = 1 ] || complain "$name: not one line on standard error: $(head -c 300 err)"
  grep -Eq -- "$pattern" err || complain "$name: '$pattern' is not in: $(head -c 300 err)"
  [ ! -s out ] || complain "$name: printed to standard output: $(head -c 300 out)"
  [ "$before" = "$after" ] || complain "$name: left files behind"
}

finish() {
  echo "$checks checks, $errors failed"
  [ "$errors" = 0 ] && [ "$checks" -gt 0 ]
}
