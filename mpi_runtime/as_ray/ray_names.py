"""Tables: which of Ray's modules and names exist here, and which of our modules are behind them."""

MODULES: dict[str, tuple[str, ...]] = {
    # Module of Ray: our modules in which its names are looked up, in this order.
    "ray": ("mpi_runtime.as_ray.top", "mpi_runtime"),
    **dict.fromkeys(("ray._common", "ray._private"), ()),
    **dict.fromkeys(("ray._common.filters", "ray._common.formatters"), ("mpi_runtime.as_ray.logging_config",)),
    "ray._private.internal_api": ("mpi_runtime.as_ray.renamed",),
    **dict.fromkeys(
        ("ray._private.ray_constants", "ray._private.runtime_env.constants"), ("mpi_runtime.as_ray.private_state",)
    ),
    "ray._private.runtime_env": (),
    "ray._private.services": ("mpi_runtime.util.locations",),
    "ray._private.state": ("mpi_runtime.as_ray.private_state",),
    **dict.fromkeys(
        ("ray._private.worker", "ray.worker"), ("mpi_runtime.as_ray.worker", "mpi_runtime.as_ray.top", "mpi_runtime")
    ),
    "ray._raylet": ("mpi_runtime.as_ray.top", "mpi_runtime"),
    **dict.fromkeys(("ray.air", "ray.air.config", "ray.air.integrations", "ray.air.session"), ()),
    **{f"ray.air.integrations.{name}": (f"mpi_runtime.tune.integration.{name}",) for name in ("mlflow", "wandb")},
    "ray.actor": ("mpi_runtime.actor",),
    **dict.fromkeys(("ray.autoscaler", "ray.autoscaler.sdk"), ()),
    "ray.cloudpickle": ("mpi_runtime.cloudpickle",),
    "ray.cross_language": (),
    **dict.fromkeys(
        (
            *("ray.dag", "ray.dag.dag_node", "ray.dag.input_node", "ray.dag.output_node"),
            *("ray.dag.class_node", "ray.dag.constants", "ray.dag.context", "ray.dag.function_node"),
        ),
        ("mpi_runtime.as_ray.dag_nodes", "mpi_runtime.as_ray.dag"),
    ),
    "ray.dag.py_obj_scanner": ("mpi_runtime.as_ray.object_scanner",),
    "ray.data": ("mpi_runtime.as_ray.data_context", "mpi_runtime.data"),
    "ray.data.aggregate": ("mpi_runtime.data.aggregate",),
    "ray.data.block": ("mpi_runtime.data.accessor",),
    **dict.fromkeys(
        (
            *("ray.data.datasource", "ray.data.datasource.datasink", "ray.data.datasource.datasource"),
            *("ray.data.datasource.file_datasink", "ray.data.datasource.filename_provider"),
            "ray.data.datasource.partitioning",
        ),
        ("mpi_runtime.data.datasource", "mpi_runtime.data"),
    ),
    "ray.data.datatype": ("mpi_runtime.data.datatype",),
    "ray.data.expressions": ("mpi_runtime.data.expressions",),
    "ray.data.context": ("mpi_runtime.as_ray.data_context",),
    **dict.fromkeys(
        [f"ray.data.{name}" for name in ("dataset", "grouped_data", "iterator", "read_api")], ("mpi_runtime.data",)
    ),
    "ray.data.exceptions": ("mpi_runtime.exceptions",),
    **dict.fromkeys(
        (
            *("ray.data.preprocessor", "ray.data.preprocessors"),
            *(f"ray.data.preprocessors.{name}" for name in ("chain", "concatenator", "discretizer", "encoder")),
            *(f"ray.data.preprocessors.{name}" for name in ("hasher", "imputer", "normalizer", "scaler")),
            *(f"ray.data.preprocessors.{name}" for name in ("tokenizer", "transformer", "vectorizer")),
        ),
        ("mpi_runtime.data.preprocessors",),
    ),
    "ray.data.preprocessors.utils": ("mpi_runtime.data.preprocessors.texts",),
    "ray.exceptions": ("mpi_runtime.exceptions",),
    **dict.fromkeys(("ray.experimental", "ray.experimental.locations"), ("mpi_runtime.util.locations",)),
    **{
        f"ray.{module}.{name}": sources
        for module in ("experimental.state", "util.state")
        for name, sources in (
            ("api", ("mpi_runtime.as_ray.listed.lists", "mpi_runtime.as_ray.listed.client")),
            ("common", ("mpi_runtime.as_ray.listed.columns",)),
            ("exception", ("mpi_runtime.as_ray.listed.lists",)),
        )
    },
    **dict.fromkeys(
        ("ray.experimental.state", "ray.util.state"),
        ("mpi_runtime.as_ray.listed.lists", "mpi_runtime.as_ray.listed.client"),
    ),
    "ray.experimental.tqdm_ray": ("mpi_runtime.util.tqdm",),
    "ray.internal": ("mpi_runtime.as_ray.renamed",),
    "ray.job_config": ("mpi_runtime.as_ray.job_config", "mpi_runtime.as_ray.logging_config"),
    "ray.remote_function": ("mpi_runtime",),
    "ray.runtime_context": ("mpi_runtime.runtime_context",),
    "ray.runtime_env": ("mpi_runtime.runtime_env",),
    **dict.fromkeys(
        (
            *("ray.train", "ray.train.base_trainer", "ray.train.context", "ray.train.data_parallel_trainer"),
            *("ray.train.trainer", "ray.train.v2", "ray.train.v2.api"),
            *(f"ray.train.v2.api.{name}" for name in ("config", "context", "data_parallel_trainer", "exceptions")),
            *(f"ray.train.v2.api.{name}" for name in ("report_config", "reported_checkpoint", "result", "callback")),
            *(f"ray.train.v2.api.{name}" for name in ("train_fn_utils", "validation_config")),
            *("ray.train.backend", "ray.train.error", "ray.train.v2.api.preemption"),
        ),
        ("mpi_runtime.as_ray.train_settings", "mpi_runtime.train"),
    ),
    "ray.state": ("mpi_runtime.as_ray.private_state",),
    "ray.train.constants": ("mpi_runtime.as_ray.train_constants",),
    "ray.train.v2._internal": (),
    "ray.train.v2._internal.constants": ("mpi_runtime.as_ray.train_constants",),
    **dict.fromkeys(("ray.train.collective", "ray.train.collective.collectives"), ("mpi_runtime.train.collective",)),
    **dict.fromkeys(
        (
            *("ray.train.torch", "ray.train.torch.config", "ray.train.torch.torch_trainer"),
            *("ray.train.torch.train_loop_utils", "ray.train.v2.torch", "ray.train.v2.torch.torch_trainer"),
            "ray.train.v2.torch.train_loop_utils",
        ),
        ("mpi_runtime.train.torch",),
    ),
    "ray.train.huggingface": (),
    "ray.train.huggingface.transformers": ("mpi_runtime.train.transformers",),
    "ray.train.lightning": ("mpi_runtime.train.lightning",),
    **{
        f"ray.train.{module}": (f"mpi_runtime.train.{name}",)
        for name in ("lightgbm", "xgboost")
        for module in (name, f"v2.{name}", f"{name}.config", f"{name}.{name}_trainer", f"v2.{name}.{name}_trainer")
    },
    "ray.tune": ("mpi_runtime.tune",),
    "ray.tune.integration": (),
    "ray.tune.integration.ray_train": ("mpi_runtime.train.in_trial",),
    **{
        f"ray.tune.integration.{name}": (f"mpi_runtime.tune.integration.{name}",)
        for name in ("lightgbm", "pytorch_lightning", "xgboost")
    },
    **dict.fromkeys(
        (
            *("ray.tune.analysis", "ray.tune.analysis.experiment_analysis", "ray.tune.callback", "ray.tune.context"),
            *("ray.tune.error", "ray.tune.execution", "ray.tune.execution.placement_groups", "ray.tune.impl"),
            *("ray.tune.impl.config", "ray.tune.logger", "ray.tune.progress_reporter", "ray.tune.registry"),
            *("ray.tune.result_grid", "ray.tune.stopper", "ray.tune.trainable", "ray.tune.tune_config"),
            *("ray.tune.tune", "ray.tune.tuner"),
            *(f"ray.tune.logger.{name}" for name in ("csv", "json", "logger", "tensorboardx")),
            *(f"ray.tune.stopper.{name}" for name in ("experiment_plateau", "function_stopper", "maximum_iteration")),
            *(f"ray.tune.stopper.{name}" for name in ("stopper", "timeout", "trial_plateau")),
            *(
                f"ray.tune.trainable.{name}"
                for name in ("function_trainable", "trainable", "trainable_fn_utils", "util")
            ),
        ),
        ("mpi_runtime.tune",),
    ),
    **dict.fromkeys(
        ("ray.tune.experiment", "ray.tune.experiment.experiment", "ray.tune.experiment.trial"),
        ("mpi_runtime.tune.trial", "mpi_runtime.tune"),
    ),
    "ray.tune.result": ("mpi_runtime.as_ray.tune_result",),
    **dict.fromkeys(
        ("ray.tune.utils", "ray.tune.utils.util"), ("mpi_runtime.as_ray.tune_utils", "mpi_runtime.tune.space.flat")
    ),
    **dict.fromkeys(
        (
            "ray.tune.schedulers",
            *(f"ray.tune.schedulers.{name}" for name in ("async_hyperband", "hb_bohb", "hyperband", "pb2", "pbt")),
            *(f"ray.tune.schedulers.{name}" for name in ("median_stopping_rule", "trial_scheduler")),
        ),
        ("mpi_runtime.tune.schedulers",),
    ),
    **dict.fromkeys(
        (
            "ray.tune.search",
            *(f"ray.tune.search.{name}" for name in ("basic_variant", "bayesopt", "bohb", "concurrency_limiter")),
            *(f"ray.tune.search.{name}" for name in ("hyperopt", "nevergrad", "optuna", "repeater", "searcher")),
            *(f"ray.tune.search.{name}.{name}_search" for name in ("hyperopt", "optuna")),
            *("ray.tune.search.bayesopt.bayesopt_search", "ray.tune.search.bohb.bohb_search"),
            "ray.tune.search.nevergrad.nevergrad_search",
        ),
        ("mpi_runtime.tune.search", "mpi_runtime.tune.space.domains"),
    ),
    "ray.tune.search.variant_generator": ("mpi_runtime.tune.space.variants", "mpi_runtime.tune.space.domains"),
    "ray.tune.search.sample": ("mpi_runtime.tune.space.domains", "mpi_runtime.tune.space.samplers"),
    "ray.types": ("mpi_runtime",),
    "ray.util": ("mpi_runtime.util",),
    **{
        f"ray.util.{name}": (f"mpi_runtime.util.{name}",)
        for name in (
            *("accelerators", "actor_pool", "check_serialize", "collective", "dask", "helpers"),
            *("joblib", "metrics", "multiprocessing", "placement_group", "queue"),
            *("scheduling_strategies", "serialization"),
        )
    },
    "ray.util.annotations": ("mpi_runtime.as_ray.annotations",),
    **dict.fromkeys(("ray.util.collective.collective", "ray.util.collective.types"), ("mpi_runtime.util.collective",)),
    "ray.util.client": ("mpi_runtime.as_ray.ray_client",),
    "ray.util.debug": ("mpi_runtime.as_ray.debug",),
    "ray.util.iter": ("mpi_runtime.as_ray.parallel_iterators",),
    "ray.util.multiprocessing.pool": ("mpi_runtime.util.multiprocessing",),
}
_OF_AIR = (
    *("Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig"),
    *("get_checkpoint", "get_context", "get_dataset_shard", "report"),
)
"""Names of `ray.air` that are the same as in `ray.train`."""
_STRATEGIES = ("DDPStrategy", "DeepSpeedStrategy", "FSDPStrategy")
RENAMED: dict[str, str] = {
    # Names that contain Ray's name.
    "ray.util.dask.disable_dask_on_ray": "mpi_runtime.as_ray.renamed.disable_dask_on_ray",
    "ray.util.dask.enable_dask_on_ray": "mpi_runtime.util.dask.enable_dask_on_mpi_runtime",
    "ray.util.dask.ray_dask_get": "mpi_runtime.util.dask.mpi_runtime_dask_get",
    "ray.util.dask.ray_dask_get_sync": "mpi_runtime.util.dask.mpi_runtime_dask_get",
    "ray.util.joblib.register_ray": "mpi_runtime.as_ray.renamed.register_ray",
    **{
        f"ray.util.{name}": f"mpi_runtime.as_ray.annotations.{name}"
        for name in ("Deprecated", "DeveloperAPI", "PublicAPI")
    },
    **{
        f"ray.util.{name}": f"mpi_runtime.as_ray.debug.{name}"
        for name in ("disable_log_once_globally", "enable_periodic_logging", "log_once")
    },
    **{
        f"ray.util.{module}.{name}": f"mpi_runtime.as_ray.renamed.{name}"
        for module in ("collective", "collective.collective")
        for name in (
            *("create_collective_group", "init_collective_group"),
            *("gloo_available", "is_backend_available", "nccl_available"),
        )
    },
    # Names that are elsewhere here.
    "ray.LoggingConfig": "mpi_runtime.as_ray.logging_config.LoggingConfig",
    "ray.tune.search.SearchGenerator": "mpi_runtime.as_ray.renamed.SearchGenerator",
    "ray.tune.search.create_searcher": "mpi_runtime.tune.create_searcher",
    "ray.tune.search.variant_generator.format_vars": "mpi_runtime.tune.counting.format_vars",
    "ray.tune.schedulers.create_scheduler": "mpi_runtime.tune.create_scheduler",
    "ray.actor.ActorClassInheritanceException": "mpi_runtime.core.calls.actor_class.ActorClassInheritanceException",
    "ray.actor.ActorProxy": "mpi_runtime.actor.ActorHandle",
    **{f"ray.train.lightning.Ray{name}": f"mpi_runtime.train.lightning.{name}" for name in _STRATEGIES},
    "ray.train.huggingface.transformers.RayTrainReportCallback": "mpi_runtime.train.transformers.ReportCallback",
    **{
        f"ray.train.{name}.RayTrainReportCallback": f"mpi_runtime.tune.integration.{name}.TuneReportCheckpointCallback"
        for name in ("lightgbm", "xgboost")
    },
    "ray.train.lightning.RayLightningEnvironment": "mpi_runtime.train.lightning.WorkerEnvironment",
    "ray.train.lightning.RayTrainReportCallback": "mpi_runtime.train.lightning.ReportCallback",
    **dict.fromkeys(
        ("ray.train.get_preemption_info", "ray.train.v2.api.train_fn_utils.get_preemption_info"),
        "mpi_runtime.as_ray.renamed.get_preemption_info",
    ),
    **{
        f"ray.tune.trainable.{name}": "mpi_runtime.tune.trials.trainable.wrap_function"
        for name in ("wrap_function", "function_trainable.wrap_function")
    },
    **dict.fromkeys(
        ("ray.tune.logger.pretty_print", "ray.tune.logger.logger.pretty_print"),
        "mpi_runtime.as_ray.tune_utils.pretty_print",
    ),
    "ray.train.constants.TRAIN_DATASET_KEY": "mpi_runtime.train.worker.TRAIN_DATASET_KEY",
    "ray.train.TRAIN_DATASET_KEY": "mpi_runtime.train.worker.TRAIN_DATASET_KEY",
    **{
        f"ray.{module}.{name}": f"mpi_runtime.train.{name}"
        for module in ("air", "air.config", "air.session")
        for name in _OF_AIR
    },
}
_CLUSTER = "an MPI job is joined by its launcher, and has no address"
_LANGUAGE = "functions and classes are Python's"
_NODES = "the nodes of a job are those of its launch"
_PRIVATE = "it is private to Ray, and programs cannot rely on it"
_TENSORS = "tensors go through the object store, or by ray.util.collective"
_FAILS = "fit() raises ray.train.TrainingFailedError, and its __cause__ is the error of the worker"
_PREEMPTION = "a lost node counts in FailureConfig(max_crashes=...): save checkpoints often"
_PRECISION = "deprecated in Ray too: use torch.amp"
_RESOURCES = "a trial keeps the resources with which it starts: state them by tune.with_resources()"
_SEARCHER = "subclass ray.tune.search.Searcher, and call the library in suggest() and on_trial_complete()"
_SYNCING = "there is nothing to synchronise: storage_path is a directory that all hosts share"
_TRAINING = "ray.train has TorchTrainer; other libraries can run in the function of a DataParallelTrainer"
ABSENT: dict[str, str] = {
    # Names that programs import and may never use; for a module, all of its names. They raise when they are called.
    "ray.ClientBuilder": _CLUSTER,
    "ray.air": _TRAINING,
    "ray.air.config": _TRAINING,
    "ray.air.session": "see ray.tune.get_context()",
    "ray.autoscaler": _NODES,
    "ray.autoscaler.sdk": _NODES,
    "ray.client": _CLUSTER,
    "ray.cross_language": _LANGUAGE,
    "ray.data": "it reads mounted files and values in memory; others can be read in flat_map()",
    "ray.train": _TRAINING,
    "ray.train.ValidationFn": "a function of a checkpoint that returns metrics",
    **dict.fromkeys((f"ray.train.{name}" for name in ("NCCLHangError", "PreemptionError")), _FAILS),
    **dict.fromkeys(
        ("ray.train.lightgbm.LightGBMCheckpoint", "ray.train.xgboost.XGBoostCheckpoint"),
        "get_model() of RayTrainReportCallback reads the model of a checkpoint",
    ),
    "ray.train.SyncConfig": _SYNCING,
    "ray.train.PreemptionInfo": _PREEMPTION,
    "ray.train.torch.TorchCheckpoint": "save the state_dict in a directory, and report Checkpoint.from_directory(path)",
    **{f"ray.train.torch.{name}": _PRECISION for name in ("accelerate", "backward", "prepare_optimizer")},
    **{
        f"ray.tune.integration.{name}.TuneReportCallback": "use TuneReportCheckpointCallback of the same module"
        for name in ("lightgbm", "xgboost")
    },
    "ray.tune.search.SearchAlgorithm": "derive from ray.tune.search.Searcher",
    "ray.tune.schedulers.ResourceChangingScheduler": _RESOURCES,
    "ray.tune.SyncConfig": _SYNCING,
    **{
        f"ray.tune.{name}FunctionTrainable": "pass the function itself"
        for name in ("trainable.", "trainable.function_trainable.")
    },
    **{f"ray.experimental.{name}": _TENSORS for name in ("register_nixl_memory", "set_target_for_ref")},
    "ray.util.connect": _CLUSTER,
    "ray.util.disconnect": _CLUSTER,
    "ray.cpp_function": _LANGUAGE,
    "ray.java_actor_class": _LANGUAGE,
    "ray.java_function": _LANGUAGE,
    **dict.fromkeys(("ray.util.state.get_log", "ray.util.state.list_logs"), "`mpi-runtime logs` shows the output"),
    "ray.util.state.list_cluster_events": "`mpi-runtime logs` shows what happened",
}
LIBRARIES = {
    **dict.fromkeys(("ray._common", "ray._private"), _PRIVATE),
    **dict.fromkeys(("ray.air.integrations.comet", "ray.air.integrations.keras"), "log to it in a tune.Callback"),
    "ray.air.integrations.mlflow.setup_mlflow": "call mlflow.start_run() in the trial",
    "ray.air.integrations.wandb.setup_wandb": "call wandb.init() in the trial",
    "ray.autoscaler._private": _PRIVATE,
    "ray.client_builder": _CLUSTER,
    "ray.cluster_utils": "`mpi-runtime run -n 4` starts four ranks on one host",
    "ray.data._internal": _PRIVATE,
    "ray.dashboard": "`mpi-runtime view` shows a running job in a browser, `mpi-runtime top` in a terminal",
    "ray.experimental.channel": "values between actors go through the object store",
    "ray.experimental.collective": _TENSORS,
    "ray.experimental.internal_kv": "keep shared values in an actor with a name",
    "ray.job_submission": "`mpi-runtime submit` submits a program to Slurm",
    "ray.llm": "run the engine of a model in an actor",
    "ray.rllib": "mpi_runtime.rl has PPO, DQN, SAC and others, with RLlib's configurations",
    "ray.serve": "call actors, from a web framework in the driver if there are requests",
    "ray.train._internal": _PRIVATE,
    "ray.train.v2": "import the name from ray.train",
    **dict.fromkeys((f"ray.tune.search.{name}" for name in ("ax", "flaml", "hebo", "zoopt")), _SEARCHER),
    "ray.tune.search.search_algorithm": "derive from ray.tune.search.Searcher",
    "ray.tune.search.search_generator": "pass the Searcher itself as search_alg",
    "ray.tune.schedulers.resource_changing_scheduler": _RESOURCES,
    "ray.tune.syncer": _SYNCING,
    "ray.tune.integration.keras": "call tune.report() in a callback of Keras",
    "ray.util.debugpy": "Ray's debugger for tasks listens on a port: log, or call the function without .remote()",
    "ray.util.client_connect": "an MPI job is joined by its launcher",
    "ray.util.rpdb": "Ray's debugger for tasks listens on a port: log, or call the function without .remote()",
    "ray.util.spark": "start the job by mpirun, srun or `mpi-runtime run`",
    "ray.util.tracing": "ray.timeline() shows when calls ran",
    "ray.workflow": "init(journal=DIR) records finished calls, and the next run of the program continues",
}
"""Modules of Ray that are not here, each with the alternative. Their import raises it."""
