from adaptive_bench.config import RunConfig as RunConfig
from adaptive_bench.config import load_config as load_config
from adaptive_bench.model import AdaptiveModel as AdaptiveModel
from adaptive_bench.model.trainer_callback import AdaptiveCallback as AdaptiveCallback
from adaptive_bench.registry import load_plugin as load_plugin
from adaptive_bench.registry import register as register
from adaptive_bench.runs import plan as plan
from adaptive_bench.runs import run as run
from adaptive_bench.runs.backbone_source import find_backbone as find_backbone
from adaptive_bench.spec import MethodSpec as MethodSpec
from adaptive_bench.store.runs import load_results as load_results
from adaptive_bench.testing.suite import check_specs as check_specs

__version__: str
