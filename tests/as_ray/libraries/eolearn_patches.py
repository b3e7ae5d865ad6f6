"""eo-learn: a workflow on four patches of a satellite image with `RayExecutor`; `parallelize_with_ray`."""

import datetime

import numpy as np
import ray
from eolearn.core import EONode, EOPatch, EOTask, EOWorkflow, FeatureType, OutputTask
from eolearn.core.extra.ray import RayExecutor, parallelize_with_ray
from sentinelhub import CRS, BBox

DAYS = [datetime.datetime(2024, 6, day) for day in (1, 11, 21)]
BANDS, NDVI = (FeatureType.DATA, "BANDS"), (FeatureType.DATA, "NDVI")


class Read(EOTask):
    def execute(self, *, seed):
        patch = EOPatch(bbox=BBox((seed, 0, seed + 1, 1), CRS.WGS84), timestamps=DAYS)
        patch[BANDS] = np.random.default_rng(seed).random((3, 8, 8, 2))
        return patch


class Index(EOTask):
    def execute(self, patch):
        red, infrared = np.moveaxis(patch[BANDS], -1, 0)
        patch[NDVI] = ((infrared - red) / (infrared + red))[..., None]
        return patch


read = EONode(Read())
workflow = EOWorkflow.from_endnodes(EONode(OutputTask("ndvi"), inputs=[EONode(Index(), inputs=[read])]))
each = [{read: {"seed": seed}} for seed in range(4)]

ray.init(num_cpus=2)
executor = RayExecutor(workflow, each)
many = [result.outputs["ndvi"] for result in executor.run(disable=True)]
alone = [workflow.execute(kwargs).outputs["ndvi"] for kwargs in each]
print(many == alone, many[3][NDVI].shape, len(executor.get_failed_executions()))
print(parallelize_with_ray(abs, [-1, -2, -3], disable=True))
