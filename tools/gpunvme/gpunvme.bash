# SPDX-License-Identifier: MIT
# bash completion for gpunvme

_gpunvme() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
  local lanes='--gpu --queues --depth --lanes --forward --verbose --json --help'
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W 'list bind unbind doctor identify read write litmus coherence bench help --version' -- "$cur")
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
  if [[ $cur != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "${cur#soft:}")
    return
  fi
  case $verb in
  list | doctor) lanes='--json --help' ;;
  bind) lanes='--user --help' ;;
  unbind) lanes='--help' ;;
  identify) lanes='--json --verbose --help' ;;
  coherence) lanes='--invalidate --json --help' ;;
  litmus) lanes='--gpu --commands --verbose --json --help' ;;
  read) lanes="--lba --bytes --xfer $lanes" ;;
  write) lanes="--lba --bytes --xfer --yes $lanes" ;;
  bench) lanes="--rw --bs --qd --seconds --yes $lanes" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$lanes" -- "$cur")
}
complete -o default -F _gpunvme gpunvme
