"""Word count in the fluent interface: the same graph as word_count.py, in one expression.

    python examples/fluent_word_count.py

It counts the words of the Markdown files in the current directory. `flat_map` and the first
half of the count run where lines are read; one row per word and task crosses the shuffle.
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
    p.run(checkpoint="out/fluent_state")
