"""What a Slurm script finds around it, as shell: the variables it knows, its output files, and `srun`.

Called by `slurm`. A script runs once for each task here, so `srun` runs its command once in each: that is one step per
task, as there. What has no meaning for one task is skipped; `-n` smaller than the job leaves the other tasks out.
"""

from __future__ import annotations

import re
import shlex

PRELUDE = """\
export SLURM_JOB_ID="$GPUYARD_JOB" SLURM_JOB_NAME="${GPUYARD_ARRAY:-$GPUYARD_JOB}" SLURM_JOB_PARTITION="$GPUYARD_QUEUE"
export SLURM_JOBID="$GPUYARD_JOB" SLURM_NPROCS="$WORLD_SIZE" SLURM_NODEID=0 SLURM_JOB_USER="$(id -un)"
export SLURM_PROCID="$RANK" SLURM_NTASKS="$WORLD_SIZE" SLURM_LOCALID="$LOCAL_RANK" SLURM_SUBMIT_DIR="$PWD"
export SLURM_JOB_NODELIST="$GPUYARD_NODE" SLURM_RESTART_COUNT=$((GPUYARD_ATTEMPT - 1))
if [ -n "$GPUYARD_ARRAY" ]; then
  export SLURM_ARRAY_JOB_ID="$GPUYARD_ARRAY" SLURM_ARRAY_TASK_ID="$GPUYARD_ARRAY_INDEX"
fi
"""
"""What scripts for Slurm read of their surroundings, under the names they know."""

SRUN = """\
gpuyard_file() {
  gpuyard_left=$1 gpuyard_made=
  while :; do
    case "$gpuyard_left" in *%*) ;; *) break ;; esac
    gpuyard_made=$gpuyard_made${gpuyard_left%%%*}
    gpuyard_left=${gpuyard_left#*%}
    gpuyard_wide=
    while :; do
      case "$gpuyard_left" in
        [0-9]*) gpuyard_rest=${gpuyard_left#?}; gpuyard_wide=$gpuyard_wide${gpuyard_left%"$gpuyard_rest"}
                gpuyard_left=$gpuyard_rest ;;
        *) break ;;
      esac
    done
    gpuyard_was=$gpuyard_left
    gpuyard_left=${gpuyard_left#?}
    case "$gpuyard_was" in
@CASES@
      %*) gpuyard_word=% gpuyard_wide= ;;
      *) gpuyard_word="%$gpuyard_wide" gpuyard_wide= gpuyard_left=$gpuyard_was ;;
    esac
    while [ -n "$gpuyard_wide" ] && [ ${#gpuyard_word} -lt "$gpuyard_wide" ]; do gpuyard_word=0$gpuyard_word; done
    gpuyard_made=$gpuyard_made$gpuyard_word
  done
  printf %s "$gpuyard_made$gpuyard_left"
}
srun() {
  gpuyard_n= gpuyard_o= gpuyard_e=
  while [ $# -gt 0 ]; do
    case "$1" in
      -n|--ntasks) gpuyard_n=$2; shift 2 ;;
      --ntasks=*) gpuyard_n=${1#*=}; shift ;;
      -n[0-9]*) gpuyard_n=${1#-n}; shift ;;
      -o|--output) gpuyard_o=$2; shift 2 ;;
      --output=*) gpuyard_o=${1#*=}; shift ;;
      -e|--error) gpuyard_e=$2; shift 2 ;;
      --error=*) gpuyard_e=${1#*=}; shift ;;
      --) shift; break ;;
      --label|--unbuffered|--exclusive|--overlap|--pty|--quiet|--verbose|--overcommit) shift ;;
      -l|-u|-v|-q|-O|-s) shift ;;
      --*=*|-[a-zA-Z][0-9]*) shift ;;
      --*|-[a-zA-Z]) shift 2 || shift $# ;;
      *) break ;;
    esac
  done
  [ -z "$gpuyard_o" ] || gpuyard_o=$(gpuyard_file "$gpuyard_o")
  [ -z "$gpuyard_e" ] || gpuyard_e=$(gpuyard_file "$gpuyard_e")
  if [ -n "$gpuyard_n" ] && [ "${SLURM_PROCID:-0}" -ge "$gpuyard_n" ]; then return 0; fi
  if [ -n "$gpuyard_o" ] && [ -n "$gpuyard_e" ]; then "$@" >>"$gpuyard_o" 2>>"$gpuyard_e"
  elif [ -n "$gpuyard_o" ]; then "$@" >>"$gpuyard_o" 2>&1
  elif [ -n "$gpuyard_e" ]; then "$@" 2>>"$gpuyard_e"
  else "$@"; fi
}
"""

VARIABLES = {
    "j": "SLURM_JOB_ID", "J": "SLURM_JOB_ID", "x": "SLURM_JOB_NAME", "A": "SLURM_ARRAY_JOB_ID",
    "a": "SLURM_ARRAY_TASK_ID", "t": "SLURM_PROCID", "n": "SLURM_NODEID", "N": "SLURM_JOB_NODELIST",
    "u": "SLURM_JOB_USER",
}  # fmt: skip
"""What stands behind a percent sign in the name of an output file."""

_CASES = "\n".join(f'      {letter}*) gpuyard_word="${name}" ;;' for letter, name in VARIABLES.items())
SRUN = SRUN.replace("@CASES@", _CASES)


def prelude(output: str, error: str) -> str:
    """What runs before the script, in its place: variables, then its output files, then the script."""
    return PRELUDE + _redirection(output, error) + 'exec "$@"\n'


def _redirection(output: str, error: str) -> str:
    """Both streams into one file, as sbatch has it, or each into its own; appended, because tasks may share one."""
    if not output and not error:
        return ""
    told = f"echo output goes to {output or error}\n"
    both = f"exec >>{output} 2>&1\n" if output else ""
    return told + both + (f"exec 2>>{error}\n" if error else "")


def file_word(pattern: str) -> str:
    """An output file's name as one word of the shell: `slurm-%j.out` with its variables, nothing else expanded.

    `%4a` pads; `ValueError` for what Slurm does not know either, or for what has no meaning here.
    """
    if not pattern:
        raise ValueError(pattern)
    word = ""
    for literal, percent, width, letter in re.findall(r"([^%]+)|(%)(\d*)(.)", pattern):
        if literal:
            word += shlex.quote(literal)
        elif letter == "%":
            word += "%"
        elif letter not in VARIABLES:
            raise ValueError(f"{percent}{letter}")
        else:
            word += _expanded(VARIABLES[letter], int(width or 0))
    return word


def _expanded(variable: str, width: int) -> str:
    return f'"$(printf %0{width}d "${variable}")"' if width else f'"${variable}"'


def with_srun(text: str, program: str) -> str:
    """The script behind a definition of `srun`, which bash hands on to the scripts that it starts."""
    return SRUN + ("export -f srun gpuyard_file\n" if program == "bash" else "") + text
