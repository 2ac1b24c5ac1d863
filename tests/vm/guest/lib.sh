#!/bin/sh
# SPDX-License-Identifier: MIT
# What the scenarios share. A scenario sources this file, calls ok, refused and finish.
checks=0
errors=0

complain() {
  errors=$((errors + 1))
  echo "FAILED: $*"
}

# ok NAME COMMAND...
ok() {
  what=$1
  shift
  checks=$((checks + 1))
  read -r before rest </proc/uptime
  if "$@" >/tmp/out 2>&1; then
    read -r after rest </proc/uptime
    echo "ok: $what ($before to $after s)"
  else
    complain "$what: status $?"
    head -n 40 /tmp/out
  fi
}

# refused NAME WORDS COMMAND...: it fails with status 1 and says WORDS
refused() {
  what=$1 words=$2
  shift 2
  checks=$((checks + 1))
  "$@" >/tmp/out 2>&1
  status=$?
  if [ $status = 1 ] && grep -q -e "$words" /tmp/out; then
    echo "ok: $what: $(tail -n 1 /tmp/out)"
  else
    complain "$what: status $status, '$words' expected: $(head -n 5 /tmp/out)"
  fi
}

# The device behind a root port, which is where tests/vm/run put it.
behind() {
  for path in /sys/devices/pci0000:00/0000:00:"$1"/0000:*; do
    [ -e "$path/class" ] && basename "$path"
  done
}

to_vfio() {
  echo vfio-pci >"/sys/bus/pci/devices/$1/driver_override"
  [ -e "/sys/bus/pci/devices/$1/driver" ] && echo "$1" >"/sys/bus/pci/devices/$1/driver/unbind"
  echo "$1" >/sys/bus/pci/drivers_probe
}

first=$(behind 10.0)
second=$(behind 11.0)
vram=$(behind 12.0)
edu=0000:00:08.0
# shellcheck disable=SC2034 # for the scenarios
readonly first second vram edu

# Files out and back through the programs, byte for byte. copies NAME URI BLOCK
copies() {
  for bytes in 1 513 100000 3000001; do
    head -c $bytes /dev/urandom >/tmp/file
    rm -f /tmp/copy
    ok "$1, write $bytes" write_file --dev "$2" --yes --lba 5 --queues 2 /tmp/file
    ok "$1, read $bytes" read_file --dev "$2" --lba 5 --bytes $bytes --queues 2 /tmp/copy
    ok "$1, compare $bytes" cmp /tmp/file /tmp/copy
  done
}

finish() {
  echo "$checks checks, $errors failed"
  [ $errors = 0 ] && [ $checks -gt 0 ]
}
