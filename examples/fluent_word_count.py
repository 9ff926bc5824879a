"""Word count in the fluent interface: word_count.py, which has it as classes, in one expression.

    python examples/fluent_word_count.py

`flat_map` and the first half of the count run where lines are read, so one row per word and
task crosses the shuffle, and a word is told once per epoch, where word_count.py tells each step.
"""

from headrace import Pipeline, sinks, sources

p = Pipeline("fluent-word-count")
(
    p.read("lines", sources.text("*.md"))
    .flat_map(lambda line: [{"word": word} for word in line.lower().split()])
    .key_by("word")
    .count()
    .write(sinks.jsonl("out/fluent_counts"))
)

if __name__ == "__main__":
    print(p.run(checkpoint="out/fluent_state"))
