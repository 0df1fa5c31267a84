"""A text of the nano model's kind, prompt and answer."""

PROMPT = "Tom has 12 apples. He gives 4 of the apples to Ann. How many apples does Tom have now?\n"
ANSWER = "Tom 12 - 4 = 8.\n#### 8"
