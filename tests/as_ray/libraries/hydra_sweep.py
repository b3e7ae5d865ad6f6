"""hydra-ray-launcher: a `--multirun` of an application with `hydra/launcher=ray`."""

import sys
import tempfile
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig

place = tempfile.mkdtemp()
sys.argv[1:] = ["--multirun", "hydra/launcher=ray", "+x=1,2,3", f"hydra.sweep.dir={place}"]
sys.argv += ["hydra/hydra_logging=disabled", "hydra/job_logging=disabled"]


@hydra.main(version_base=None, config_path=None)
def app(config):
    Path(HydraConfig.get().runtime.output_dir, "value").write_text(str(config.x**2))


app()
print(sorted(path.read_text() for path in Path(place).glob("*/value")))
