# SPDX-License-Identifier: MIT
# bash completion for gpunvme

# Addresses of NVMe controllers. Bash parts words at ':' (COMP_WORDBREAKS): what is before the last of them is typed already.
_gpunvme_addresses() {
  local word=${COMP_LINE:0:COMP_POINT} class address before=
  word=${word##* }
  [[ $COMP_WORDBREAKS != *:* ]] || before=${word%"${word##*:}"}
  for class in "${GPUNVME_SYSFS:-/sys}"/bus/pci/devices/*/class; do
    [[ -r $class && $(<"$class") = 0x010802 ]] || continue
    address=${class%/class}
    address=${address##*/}
    [[ $address != "$word"* ]] || COMPREPLY+=("${address#"$before"}")
  done
}

_gpunvme() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
  local options='--dev --gpu --queues --depth --threads --forward --cmb --invalidate --verbose --json --help'
  COMPREPLY=()
  if ((COMP_CWORD == 1)) || [ "$verb$COMP_CWORD" = help2 ]; then
    mapfile -t COMPREPLY < <(compgen -W 'list bind unbind doctor identify read write discard ls cat extents unlease ordering-test faults coherence report bench serve soak qualify help --version' -- "$cur")
    return
  fi
  case $prev in
  --rw)
    mapfile -t COMPREPLY < <(compgen -W 'read write randread randwrite' -- "$cur")
    return
    ;;
  --gpu)
    mapfile -t COMPREPLY < <(compgen -W 'auto cpu cpu:4 cpu:32 hsa:0 cuda:0' -- "$cur")
    return
    ;;
  esac
  if [ "$prev" = --user ]; then
    mapfile -t COMPREPLY < <(compgen -u -- "$cur")
    return
  fi
  if [[ $cur != -* ]]; then
    [[ $cur == *' '* ]] || _gpunvme_addresses
    case $verb in bench | serve | soak | identify | ordering-test) [[ -z $cur || soft:ram: != "$cur"* ]] || COMPREPLY+=(soft:ram:) ;; esac
    case $verb in bind | unbind | doctor) return ;; esac
    compopt -o filenames 2>/dev/null # blanks are quoted
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${cur#@(soft|vfio-user):}")
    return
  fi
  case $verb in
  list | doctor | faults) options='--json --help' ;;
  bind) options='--user --help' ;;
  unbind) options='--help' ;;
  identify) options='--dev --json --verbose --help' ;;
  coherence) options='--invalidate --json --help' ;;
  report) options='--gpu --output --seconds --help' ;;
  ordering-test) options='--dev --gpu --commands --vram --memory --hip-copies --verbose --json --help' ;;
  read) options="--lba --bytes --xfer --force --yes $options" ;;
  write) options="--lba --bytes --xfer --yes --fua $options" ;;
  discard) options='--dev --lba --blocks --yes --verbose --json --help' ;;
  serve) options='--vfio-user --ublk --id --recover --remove --force --ro --queues --depth --dev --yes --verbose --help' ;;
  ls) options='--dev --partition --recursive --verbose --help' ;;
  cat) options='--dev --partition --map --verbose --help' ;;
  extents | unlease) options='--help' ;;
  qualify) options='--dev --yes --read-only --overwrite --formats --seconds --power --after --output --force --verbose --help' ;;
  soak) options="--seconds --commands --timeout --calm --vram --yes $options" ;;
  bench) options="--rw --mix --bs --qd --seconds --vram --yes $options" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}
complete -o default -F _gpunvme gpunvme
