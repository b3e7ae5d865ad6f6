"""dipy: fibres of each voxel of a diffusion image, fitted with `engine="ray"`, beside one process."""

import numpy as np
import ray
from dipy.core.gradients import gradient_table
from dipy.core.sphere import HemiSphere, disperse_charges
from dipy.reconst.csdeconv import ConstrainedSphericalDeconvModel
from dipy.sims.voxel import single_tensor

generator = np.random.default_rng(1)
directions, _ = disperse_charges(HemiSphere(xyz=generator.normal(size=(45, 3))), 100)
gradients = gradient_table(np.r_[0, np.full(45, 1000)], bvecs=np.r_[np.zeros((1, 3)), directions.vertices])
evals = np.array([0.0015, 0.0003, 0.0003])
turns = (np.linalg.qr(generator.normal(size=(3, 3)))[0] for _ in range(12))
image = np.array([single_tensor(gradients, S0=100, evals=evals, evecs=turn) for turn in turns]).reshape(3, 2, 2, -1)

ray.init(num_cpus=2)
model = ConstrainedSphericalDeconvModel(gradients, (evals, 100), sh_order_max=4)
alone = model.fit(image)
many = model.fit(image, engine="ray", n_jobs=2, vox_per_chunk=3, verbose=False)
print(many.shm_coeff.shape, np.allclose(alone.shm_coeff, many.shm_coeff))
