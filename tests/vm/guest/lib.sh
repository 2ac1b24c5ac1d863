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

# node ADDRESS: the name of a controller
node() {
  basename "/sys/bus/pci/devices/$1/nvme/"nvme*
}

# soon COMMAND...: it succeeds, if not at once: a busy machine may take a minute, and more, for what takes no time on another
soon() {
  looks=600
  until "$@"; do
    [ $looks -gt 0 ] || return 1
    looks=$((looks - 1))
    sleep 0.1
  done
}

# find_namespace ADDRESS NSID: its block device, if the kernel has made it. The kernel numbers them as it finds them, side by side, so
# the number in the name may be another one's; with multipath it names them after the subsystem, and their paths after controllers.
find_namespace() {
  for at in "/sys/bus/pci/devices/$1/nvme/"nvme*/nvme*n*; do
    name=$(basename "$at" | sed 's/c[0-9]*n/n/')
    [ "$(cat "/sys/block/$name/nsid" 2>/dev/null)" = "$2" ] && [ -b "/dev/$name" ] && echo "/dev/$name" && return 0
  done
  return 1
}

# namespace ADDRESS NSID: the same, once it has
namespace() {
  soon find_namespace "$1" "$2" || echo "no namespace $2 of $1"
}

is_read() { [ "$(head -c 512 "$1" 2>/dev/null | wc -c)" = 512 ]; }

# disk ADDRESS: the block device of its namespace 1, once the kernel has made and reads it
disk() {
  block=$(namespace "$1" 1)
  soon is_read "$block"
  echo "$block"
}

# Driver, its override, and the command register of every device of interest.
found() {
  for device in $first $second $third $neighbour $vram; do
    at=/sys/bus/pci/devices/$device
    read -r override <"$at/driver_override"
    echo "$device $(readlink "$at/driver") $override $(od -An -tx1 -j 4 -N 2 "$at/config")"
  done 2>&1
}

# refused NAME WORDS COMMAND...: it fails with status 1, says WORDS and leaves every device as it was
refused() {
  what=$1 words=$2
  shift 2
  checks=$((checks + 1))
  before=$(found)
  "$@" >/tmp/out 2>&1
  status=$?
  after=$(found)
  [ "$before" = "$after" ] || complain "$what: it left '$after' and found '$before'"
  if [ $status = 1 ] && grep -q -e "$words" /tmp/out; then
    echo "ok: $what: $(tail -n 1 /tmp/out)"
  else
    complain "$what: status $status, '$words' expected: $(head -n 5 /tmp/out)"
  fi
}

# at_work VERB URI [OPTIONS]: the tool in the background as $load, with its outcome in /tmp/load; the controller has been taken,
# there are queues, and threads had a second to begin.
at_work() {
  : >/tmp/load # the shell's child empties it too late for what the last one said
  gpunvme "$@" --verbose >/tmp/load 2>&1 &
  load=$!
  soon grep -q "queue 1: self-test passed" /tmp/load || complain "$*: no queues: $(cat /tmp/load)"
  sleep 1
}

# busy URI [OPTIONS]: the same, endless I/O
busy() { at_work bench "$@" --seconds 300; }

# writes DISK: how many it has done. are_written DISK COUNT
writes() { awk '{ print $5 }' "/sys/block/$1/stat"; }
are_written() { [ "$(writes "$1")" -ge "$2" ]; }

# under_way DISK COMMAND...: in the background as $load, with its outcome in /tmp/load, once it has written for a while
under_way() {
  below=$1
  shift
  enough=$(($(writes "$below") + 20))
  "$@" >/tmp/load 2>&1 &
  load=$!
  soon are_written "$below" $enough || complain "it does not write: $*: $(cat /tmp/load)"
}

# has_open PROCESS FILE
has_open() {
  # shellcheck disable=SC2010 # these are numbers, and readlink of busybox takes one
  ls -l "/proc/$1/fd" 2>/dev/null | grep -q -e " $2\$"
}

# hold URI FILE: a program of the library, $holder, has both, until let_go. What it opens to keep others away it opens before the file.
hold() {
  gpunvme bench "$1" --seconds 1000 --queues 1 --threads 1 >/tmp/load 2>&1 &
  holder=$!
  soon has_open $holder "$2" || complain "nobody holds $1: $(cat /tmp/load)"
}

let_go() {
  kill -INT "$holder"
  wait "$holder"
}

# ended NAME WORDS: the load ends by itself, far below its command time-out, and says WORDS
ended() {
  checks=$((checks + 1))
  left=60
  while kill -0 "$load" 2>/dev/null && [ $left -gt 0 ]; do
    sleep 1
    left=$((left - 1))
  done
  if kill -9 "$load" 2>/dev/null; then
    complain "$1: still running after 60 s: $(cat /tmp/load)"
    return
  fi
  wait "$load"
  status=$?
  [ $status = 1 ] || complain "$1: status $status: $(cat /tmp/load)"
  grep -q "$2" /tmp/load || complain "$1: $(cat /tmp/load)"
  grep -q "leaked" /tmp/load && complain "$1: $(cat /tmp/load)"
  echo "ok: $1: $(tail -n 1 /tmp/load)"
}

# The device below a root port, which is where tests/vm/run put it.
behind() {
  for path in /sys/devices/pci000?:00/000?:00:"$1"/000?:*; do
    [ -e "$path/class" ] && basename "$path"
  done
}

find_served() {
  for at in /sys/class/nvme/nvme*; do
    name=$(basename "$at")
    grep -q "libgpunvme soft controller" "$at/model" && [ "$(cat "/sys/block/${name}n1/size" 2>/dev/null)" = $(($1 * 2048)) ] &&
      echo "$name" && return 0
  done
  return 1
}

# served MIB: the name of the controller whose drive has that size, among those that a server of ours serves, once the kernel has it
served() {
  soon find_served "$1" || echo "no drive of $1 MiB"
}

# mount_tools: fio and its many libraries lie on a drive (tests/vm/served.sh), of which only what is used is read.
mount_tools() {
  mkdir -p /tmp/tools
  for at in /sys/class/nvme/nvme*; do
    if [ "$(tr -d ' ' <"$at/serial")" = tools ]; then
      soon [ -b "/dev/$(basename "$at")n1" ]
      ok "tools" mount -t ext4 -o ro "/dev/$(basename "$at")n1" /tmp/tools
    fi
  done
}

# fio_on DRIVE OPTIONS...: fio from there, past the page cache. run_fio NAME DRIVE OPTIONS...: it succeeds
fio_on() {
  node=/dev/${1}n1
  shift
  env LD_PRELOAD=/tmp/libvm_shm.so LD_LIBRARY_PATH=/tmp/tools /tmp/tools/fio --name=fio "--filename=$node" --direct=1 \
    --ioengine=io_uring --thread --randrepeat=0 "$@"
}
run_fio() {
  name=$1
  shift
  ok "$name" fio_on "$@"
}

to_vfio() {
  echo vfio-pci >"/sys/bus/pci/devices/$1/driver_override"
  [ -e "/sys/bus/pci/devices/$1/driver" ] && echo "$1" >"/sys/bus/pci/devices/$1/driver/unbind"
  echo "$1" >/sys/bus/pci/drivers_probe
}

first=$(behind 10.0)
second=$(behind 11.0)
vram=$(behind 12.0)
third=$(behind 13.0 | head -n 1)
neighbour=$(behind 13.0 | tail -n 1)
edu=0000:00:08.0
# shellcheck disable=SC2034 # for the scenarios
readonly first second third neighbour vram edu

driver() {
  basename "$(readlink "/sys/bus/pci/devices/$1/driver")"
}

# Files out and back through the programs, byte for byte. copies NAME URI BLOCK
copies() {
  for bytes in 1 513 100000 3000001; do
    head -c $bytes /dev/urandom >/tmp/file
    rm -f /tmp/copy
    ok "$1, write $bytes" write_file --dev "$2" --yes --lba 5 --queues 2 /tmp/file
    ok "$1, read $bytes" read_file --dev "$2" --lba 5 --bytes $bytes --queues 2 --force /tmp/copy
    ok "$1, compare $bytes" cmp /tmp/file /tmp/copy
  done
}

finish() {
  echo "$checks checks, $errors failed"
  [ $errors = 0 ] && [ $checks -gt 0 ]
}
