# Sourced by the run scripts, with $here set to the parent folder: starts main_multi_gpu.py with their arguments.
if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
elif [ -n "${VIRTUAL_ENV:-}" ] && [ -x "$VIRTUAL_ENV/bin/python" ]; then
    python=$VIRTUAL_ENV/bin/python
elif [ -n "${CONDA_PREFIX:-}" ] && [ -x "$CONDA_PREFIX/bin/python" ]; then
    python=$CONDA_PREFIX/bin/python
elif [ -x "$here/.venv/bin/python" ]; then
    python=$here/.venv/bin/python
    # In a subshell: only it dies if nobody reads stderr any more.
    (printf '%s\n' "no environment is active: using $python" >&3) 3>&2 2>/dev/null || :
elif command -v python >/dev/null; then
    python=python
elif command -v python3 >/dev/null; then # Debian has no python
    python=python3
else
    echo "error: there is neither python nor python3 on the PATH: set PYTHON=/path/to/python3" >&2
    exit 2
fi

processes=
[ -e /dev/nvidia0 ] || processes=-ngpus=2
for word in "$@"; do
    case $word in -ngpus* | --ngpus*) processes= ;; esac
done
exec "$python" "$here/main_multi_gpu.py" ${processes:+"$processes"} "$@"
