"""What a night draws: FUZZ_CASES of each kind, with a seed that is the day's number, or FUZZ_SEED to repeat a night."""

import datetime
import os

CASES = int(os.environ.get("FUZZ_CASES") or 300)
SEED = int(os.environ.get("FUZZ_SEED") or datetime.date.today().toordinal())
