"""WMT16 English-Romanian news translation: newstest2016, scored with sacreBLEU (0 to 100).

The paper's table 12 gives BLEU without a scale and no template. Worked examples are drawn from newsdev2016, which is
also the validation split; the hub's training split (610,320 pairs) is not part of the local data folder.
"""

from __future__ import annotations

from pathlib import Path

from adaptive_bench.data import Source, draw, read_rows
from adaptive_bench.task import Example, ExampleRequest, Task

SOURCE = Source(
    "wmt/wmt16",
    configuration="ro-en",
    fields=("translation",),
    form=lambda row: PROMPT.format(**row["translation"]) + row["translation"]["ro"],
)
PROMPT = "Translate from English into Romanian.\nEnglish: {en}\nRomanian:"


def training(request: ExampleRequest) -> list[Example]:
    """Examples of an English sentence and its Romanian translation."""
    rows = draw(read_rows(SOURCE, "train", request.data_dir), lambda row: str(row["translation"]["en"]), request)
    pairs = (row["translation"] for row in rows)
    return [Example(PROMPT.format(en=pair["en"]), f" {pair['ro']}") for pair in pairs]


WMT16_EN_RO = Task(
    name="wmt16_en_ro",
    description="News from English into Romanian, zero-shot; newstest2016",
    kind="generative",
    folder=Path(__file__).parent,
    metrics=("bleu,none", "chrf,none"),
    chance=0.0,
    training=training,
    validation_split="validation",
    data_folders=SOURCE.folders,
    source=str(SOURCE),
    licence="WMT shared-task data, for research",
    text_source=f"news and parliament texts with their translations ({SOURCE}, train)",
)
