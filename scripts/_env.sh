# Sourced by the other scripts: virtual environments that set themselves up. Leaves the shell in the repository root.
#
# Only pip is used, with whatever index, proxy and constraints pip is configured for on this machine.

readonly TORCH_PIN="torch==2.13.0"
readonly SUPPORTED="3.10 3.11 3.12 3.13"

cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$(pwd -P)
readonly ROOT

unset PYTHONHOME PYTHONPATH
export PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() {
    printf '%s\n' "$*" >&2
}

die() {
    say "scripts/${0##*/}: $*"
    exit 2
}

# What an environment was made from. Where any of it changes, pip runs again.
environment_stamp() { # PYTHON REQUIREMENT...
    local python=$1
    shift
    "$python" - "$ROOT" "$@" <<'PYTHON'
import hashlib
import pathlib
import sys

facts = [sys.version, *sys.argv[1:]]
print(hashlib.sha256("\n".join(facts).encode() + pathlib.Path("pyproject.toml").read_bytes()).hexdigest())
PYTHON
}

# Make the environment, or bring it up to date; returns at once where it is up to date already. The
# requirements are installed one after the other, in the order given. Two scripts started at once take turns.
ensure_environment() { # FOLDER BASE-PYTHON REQUIREMENT...
    mkdir -p .lanes
    (
        # Not everywhere is there a flock; without it, the first run must be a single one.
        if command -v flock >/dev/null; then
            flock 9
        fi
        make_environment "$@"
    ) 9>.lanes/setup.lock
}

make_environment() { # FOLDER BASE-PYTHON REQUIREMENT...
    local folder=$1 base=$2
    shift 2
    local python="$folder/bin/python" log="$folder/setup.log" requirement status=0
    mkdir -p .lanes
    if ! "$python" -c 'import pip' >/dev/null 2>&1; then
        say "making $folder with $("$base" --version 2>&1)"
        if ! "$base" -m venv --clear "$folder" >.lanes/venv.log 2>&1; then
            say "scripts/${0##*/}: $base can't make a virtual environment (see .lanes/venv.log). Is its module" \
                "ensurepip installed? Debian and Ubuntu: apt install python3-venv."
            return 2
        fi
    fi
    local stamp
    stamp=$(environment_stamp "$python" "$@") || return 2
    if [[ "$(cat "$folder/stamp" 2>/dev/null)" == "$stamp" ]]; then
        return 0
    fi
    rm -f "$folder/stamp"
    : >"$log"
    for requirement in "$@"; do
        say "installing $requirement into $folder"
        # Word splitting is meant: "-e .[dev]" is an option and its value.
        # shellcheck disable=SC2086
        "$python" -m pip install --progress-bar off $requirement >>"$log" 2>&1 || status=$?
        if ((status)); then
            tail -n 15 "$log" >&2
            say "scripts/${0##*/}: pip can't install $requirement; all that it said is in $log"
            return 2
        fi
    done
    printf '%s\n' "$stamp" >"$folder/stamp"
}

# Set up .venv and name its interpreter in PYTHON_BIN.
ensure_main_environment() {
    local base=${PYTHON:-python3}
    if [[ ! -x .venv/bin/python ]]; then
        "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
            die "expected Python 3.10 or later as $base, found" \
                "$("$base" --version 2>/dev/null || echo nothing that starts). Name one: PYTHON=python3.12 $0"
    fi
    ensure_environment .venv "$base" "$TORCH_PIN" "-e .[dev]" || exit 2
    PYTHON_BIN="$ROOT/.venv/bin/python"
    readonly PYTHON_BIN
}

# Where environments with other releases of torch are kept from one run, and one checkout, to the next.
lanes_folder() {
    printf '%s\n' "${PATCHKIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/patchkit}/lanes"
}

# Print the path of an interpreter of that version, or fail. Asking it for its version is the test: the shims of
# version managers exist for versions that they can't start.
find_python() { # VERSION
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}
