#!/bin/bash
# SPDX-License-Identifier: MIT
# What the scenarios with served drives share: sourced with $work and $tool set, and with $place, where images and sockets lie, if not in
# /tmp. A socket's name has 107 bytes at most, QEMU's words no blanks.
: "${work:?}" "${tool:?}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
place=${place:-/tmp}
# A scenario that is killed cannot remove its folder, which may lie in memory. The next one does: the servers hold the lock, too.
for old in "$place"/gnv-served-*; do
  if [ -e "$old/lock" ] && flock -n "$old/lock" true; then
    rm -rf "$old"
  fi
done
new=$(mktemp -d "$place/gnv-new-XXXXXX")
exec 9>"$new/lock"
flock 9
tmp=${new/gnv-new/gnv-served} # it has this name only when it is locked
mv "$new" "$tmp"
servers=()
# shellcheck disable=SC2317 # it is called by the trap
end() {
  kill "${servers[@]}" 2>/dev/null || true
  wait
  rm -rf "$tmp"
}
trap end EXIT

programs=()
# need NAME...: programs for the guest
need() {
  local name program
  for name in "$@"; do
    program=$(PATH=$PATH:/usr/sbin:/sbin command -v "$name") || {
      echo "skipped: $name is not installed (scripts/setup long)"
      exit 77
    }
    programs+=("$program")
  done
}

# make_tools PROGRAM: an image with it and its libraries; $tools are QEMU's words for that drive, which guest/lib.sh mounts
make_tools() {
  local program mkfs
  if ! program=$(command -v "$1") || ! mkfs=$(PATH=$PATH:/usr/sbin:/sbin command -v mkfs.ext4); then
    echo "skipped: $1 or mkfs.ext4 is not installed (scripts/setup long)"
    exit 77
  fi
  mkdir "$tmp/tools"
  ldd "$program" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | xargs cp -L -t "$tmp/tools" "$program"
  truncate -s 160M "$tmp/tools.img"
  "$mkfs" -q -F -d "$tmp/tools" "$tmp/tools.img"
  # shellcheck disable=SC2034 # for the scenarios
  tools="-drive if=none,id=tools,file=$tmp/tools.img,format=raw -device nvme,serial=tools,drive=tools"
}

# serve NAME KEYS SIZE: an image of that size
serve() {
  truncate -s "$3" "$tmp/$1.img"
  serve_uri "$1" "soft:$tmp/$1.img?$2"
}

# serve_uri NAME URI: until the socket is there
serve_uri() {
  : >"$tmp/$1.log"
  "$tool" serve --vfio-user "$tmp/$1" "$2" >"$tmp/$1.log" 2>&1 &
  servers+=($!)
  until grep -q "is served at" "$tmp/$1.log"; do
    kill -0 $! || { cat "$tmp/$1.log"; exit 1; }
    sleep 0.1
  done
}

# device NAME [MEMBERS]: QEMU's words for it, and more members of the object
device() {
  echo "-device {\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"$tmp/$1\"}${2:+,$2}}"
}

# boot SCENARIO WORDS...: with memory that a server can map
boot() {
  local scenario=$1
  shift
  VM_QEMU="-object memory-backend-memfd,id=ram,size=768M,share=on -machine memory-backend=ram $*" \
    "$here/run" "$work" "$scenario" "${programs[@]}"
}
