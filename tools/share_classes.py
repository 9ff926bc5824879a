"""Makes an archive of the classes that Spark loads, for JVMs that live for seconds.

    tools/share_classes.py FILE

Loading and verifying its classes is a third of the work of a JVM that runs one short pipeline. A
JVM that finds them in an archive (SPARK_SUBMIT_OPTS=-XX:SharedArchiveFile=FILE) maps them into
memory. A JVM that the archive does not fit, of another version say, starts without it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "word_count.py"


def main(archive: Path) -> None:
    """Runs an example whose JVM writes the archive as it ends."""
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    options = f"-Xlog:disable -XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "a.md").write_text("the mill the wheel\n")
        # Returns when the JVM, too, has closed its output.
        done = subprocess.run(
            [sys.executable, str(EXAMPLE)],
            cwd=place,
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
            timeout=240,
        )
    if unfinished.exists():
        unfinished.replace(archive)
    else:  # not every JVM can
        print(f"There is no archive: JVMs start without one. {done.stderr[-1000:]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
