"""``python -m npu_kit`` is the command ``npu-kit``."""

import sys

from npu_kit.cli import main

sys.exit(main())
