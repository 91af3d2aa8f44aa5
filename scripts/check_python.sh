#!/bin/sh
# Says in one sentence why a Python cannot make the environment. Usage: check_python.sh PYTHON
python=$1

if ! command -v "$python" >/dev/null 2>&1; then
    echo "There is no program $python. Install Python 3.10 or later, or name yours: make PYTHON=python3.12 lab" >&2
    exit 1
fi
if ! version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 10))'); then
    echo "$python is Python ${version:-of an unknown version}, and npu_kit needs 3.10 or later." \
        "Name a newer one: make PYTHON=python3.12 lab" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    echo "$python has no venv module. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2
    exit 1
fi
