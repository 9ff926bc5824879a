"""Word count: counts the words of the Markdown files in the current directory.

    python examples/word_count.py

Results appear in out/counts, the state lies in out/state. A second start goes on
where the first ended; delete out/ to begin again. fluent_word_count.py says the same
in one expression.
"""

from headrace import Computation, Pipeline, sinks, sources, state


class Split(Computation):
    def process_record(self, record, ctx):
        for word in record.value.lower().split():
            ctx.produce(word)


class Count(Computation):
    count: int = state(0)

    def process_record(self, record, ctx):
        self.count += 1
        ctx.produce({"word": ctx.key, "count": self.count})


p = Pipeline("word-count")
p.read("lines", sources.text("*.md"))
p.compute(Split, inputs={"lines": None}, outputs="words")
p.compute(Count, inputs={"words": str}, outputs="counts")
p.stream("counts").write(sinks.jsonl("out/counts"))

if __name__ == "__main__":
    print(p.run(checkpoint="out/state"))
