"""A pipeline for `spark-submit`, in modules that only --py-files can bring to workers.

`PROGRAM` is given to spark-submit as it is; `MODULES` go into a zip file.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

PRICES = """
def cents(number):
    return 100 * number
"""

SHOP = """
import os
from pathlib import Path

from headrace import Computation, Pipeline, sinks, sources, state

KEYS = 6


class Tally(Computation):
    count: int = state(0)

    def process_record(self, record, ctx):
        from prices import cents  # it lies beside this module, in the zip file

        self.count += 1
        jars = sorted(name for name in os.listdir() if name.endswith(".jar"))
        row = {"n": record.value["n"], "key": ctx.key, "count": self.count, "jars": jars}
        ctx.produce({**row, "cents": cents(record.value["n"]), "where": os.getcwd()})


def number(n, dice):
    return {"n": n, "key": n % KEYS}


def pipeline():
    p = Pipeline("submitted")
    count = int(os.environ["SHOP_COUNT"])
    p.read("numbers", sources.generate(number, rate=100, count=count, start=0))
    p.compute(Tally, inputs={"numbers": "key"}, outputs="tallies")
    p.stream("tallies").write(sinks.jsonl(Path(os.environ["SHOP_OUTPUT"])))
    return p
"""

PROGRAM = """
import os

from shop import pipeline

if __name__ == "__main__":
    here = os.environ["SHOP_STATE"]

    def tell(progress):
        print("epoch", progress.epoch, flush=True)

    pipeline().run(checkpoint=here, slots=2, epoch_records=30, on_epoch=tell)
"""

IVY = """<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers>
    <filesystem name="here" m2compatible="true">
      <artifact pattern="{home}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
      <ivy pattern="{home}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId><artifactId>tiny</artifactId><version>1</version>
</project>
"""


def write_shop(where: Path) -> Path:
    """The zip file with the pipeline and what it imports."""
    with zipfile.ZipFile(where / "shop.zip", "w") as made:
        made.writestr("shop.py", SHOP)
        made.writestr("prices.py", PRICES)
    (where / "program.py").write_text(PROGRAM)
    return where / "shop.zip"


def write_repository(where: Path) -> dict[str, str]:
    """A repository with the package example:tiny:1, and settings that make Spark ask only it."""
    home = where / "repository" / "example" / "tiny" / "1"
    home.mkdir(parents=True)
    (home / "tiny-1.pom").write_text(POM)
    with zipfile.ZipFile(home / "tiny-1.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    settings = where / "ivysettings.xml"
    settings.write_text(IVY.format(home=where / "repository"))
    return {"spark.jars.ivySettings": str(settings), "spark.jars.ivy": str(where / "ivy")}
