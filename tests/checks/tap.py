# SPDX-License-Identifier: MIT
"""TAP for checks: a case has a name and a list of problems."""

import sys


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def case(self, name, problems):
        """Reports one case; it passes if there are no problems."""
        self.count += 1
        problems = list(problems)
        if problems:
            self.failed += 1
            print(f"failed: {name}", file=sys.stderr)
            for problem in problems:
                print(f"  {problem}", file=sys.stderr)
        print(f"{'not ok' if problems else 'ok'} {self.count} - {name}")
        sys.stdout.flush()

    def finish(self):
        print(f"1..{self.count}")
        sys.exit(1 if self.failed or not self.count else 0)
