"""The last that a fork server loads: what every process that is forked from it would otherwise do by itself.

The table by which transformers renames weights takes most of a second. And a full garbage collection in a forked
process would copy the pages of all that the server has loaded, so that is exempt from collections.
"""

import gc
from contextlib import suppress

with suppress(ImportError):  # not every version of transformers has it; it is made when first asked for, whatever for
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    get_checkpoint_conversion_mapping("llama")
gc.collect()
gc.freeze()
