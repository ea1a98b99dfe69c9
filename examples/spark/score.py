"""Mails scored by a small model on Spark: the program of packages/spark/docs/spark-process.md.

python examples/spark/score.py add COUNT    adds mails to a queue; every hundredth is unreadable
python examples/spark/score.py score        scores all of them, on all cores
python examples/spark/score.py show         takes the results and counts them
"""

import json
import os
import random
import sys
import zlib
from collections.abc import Iterable

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from disque_spark import Failed, process
from disque_trio.client.sync import connect

NODES = ["127.0.0.1:7711"]
BUCKETS = 1024
ODD = ["winner", "prize", "urgent", "free", "cash", "offer", "click", "loan", "casino", "bonus"]
PLAIN = ["meeting", "report", "invoice", "lunch", "team", "review", "budget", "draft", "agenda"]
BOTH = ["please", "the", "a", "today", "we", "you", "for", "with", "and", "your", "new"]


def mail(number: int) -> tuple[str, bool]:
    """A text, and whether it is spam."""
    words = random.Random(number)
    odd = words.random() < 0.4
    own, others = (ODD, PLAIN) if odd else (PLAIN, ODD)
    text = words.choices(own, k=6) + words.choices(others, k=2) + words.choices(BOTH, k=8)
    words.shuffle(text)
    return " ".join(text), odd


def counts(texts: Iterable[str]) -> np.ndarray:
    """A row for each text: how many of its words are in each bucket."""
    hashed = [[zlib.crc32(word.encode()) % BUCKETS for word in text.split()] for text in texts]
    return np.stack([np.bincount(buckets, minlength=BUCKETS) for buckets in hashed])


class Model:
    """Naive Bayes: learns from labelled mails."""

    def __init__(self, mails: list[tuple[str, bool]]) -> None:
        seen = counts(text for text, _ in mails)
        odd = np.array([odd for _, odd in mails])
        sums = np.stack([seen[~odd].sum(axis=0), seen[odd].sum(axis=0)]) + 1
        plain_log, odd_log = np.log(sums / sums.sum(axis=1, keepdims=True))
        self.weights = odd_log - plain_log
        self.bias = np.log(odd.mean() / (1 - odd.mean()))

    def __call__(self, texts: Iterable[str]) -> np.ndarray:
        """The probability that each is spam, from 0 to 1."""
        return 1 / (1 + np.exp(-(counts(texts) @ self.weights + self.bias)))


def add(count: int) -> None:
    """Add mails. Those that fail twice become dead letters."""
    with connect(NODES) as client:
        client.set_policy("mails", attempts=2, dead="mails.failed")
        bodies = [b"\xff\xfe" if n % 100 == 99 else mail(n)[0] for n in range(count)]
        client.add_many("mails", bodies)


def score() -> None:
    """Train the model, and let Spark's executors score mails with it."""
    model = Model([mail(number) for number in range(1_000_000, 1_002_000)])

    def scored(jobs: pd.DataFrame) -> list[object]:
        texts = [body.decode(errors="replace") for body in jobs["body"]]
        return [
            Failed("not UTF-8") if "\ufffd" in text else {"spam": spam}
            for text, spam in zip(texts, model(texts).round(3), strict=True)
        ]

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers use the same Python
    spark = SparkSession.builder.appName("score").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    summary = process(
        "mails", scored, nodes=NODES, results="scores", batches=True, size=500, delay=0
    )
    print(f"{summary.done} scored, {summary.failed} attempts failed")
    spark.stop()


def show() -> None:
    """Take the results, and count the dead letters."""
    with connect(NODES) as client:
        scores = []
        while jobs := client.get("scores", count=500, timeout=0.5):
            scores += [json.loads(job.body)["spam"] for job in jobs]
            client.ack(*[job.id for job in jobs])
        print(f"{len(scores)} results, {sum(score > 0.5 for score in scores)} of them spam")
        print(f"{client.qlen('mails.failed')} in mails.failed, {client.qlen('mails')} in mails")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["add", number]:
            add(int(number))
        case ["score"]:
            score()
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)
