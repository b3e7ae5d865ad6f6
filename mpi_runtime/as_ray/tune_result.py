"""`ray.tune.result`: names of reported values, and of files."""

CONFIG_PREFIX = "config"
DEFAULT_EXPERIMENT_NAME = "default"
DEFAULT_METRIC = "_metric"
DONE = "done"
EPISODES_THIS_ITER = "episodes_this_iter"
EPISODES_TOTAL = "episodes_total"
EPISODE_REWARD_MEAN = "episode_reward_mean"
EXPERIMENT_TAG = "experiment_tag"
EXPR_ERROR_FILE = "error.txt"
EXPR_ERROR_PICKLE_FILE = "error.pkl"
EXPR_PARAM_FILE = "params.json"
EXPR_PARAM_PICKLE_FILE = "params.pkl"
EXPR_PROGRESS_FILE = "progress.csv"
EXPR_RESULT_FILE = "result.json"
HOSTNAME = "hostname"
MEAN_ACCURACY = "mean_accuracy"
MEAN_LOSS = "mean_loss"
NODE_IP = "node_ip"
PID = "pid"
SHOULD_CHECKPOINT = "should_checkpoint"
TIMESTAMP = "timestamp"
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
TIMESTEPS_TOTAL = "timesteps_total"
TIME_THIS_ITER_S = "time_this_iter_s"
TIME_TOTAL_S = "time_total_s"
TRAINING_ITERATION = "training_iteration"
TRIAL_ID = "trial_id"
DEBUG_METRICS = (TRIAL_ID, "experiment_id", "date", TIMESTAMP, PID, HOSTNAME, NODE_IP, "config")
"""Names of values that `Trial.metric_analysis` leaves out."""
DEFAULT_EXPERIMENT_INFO_KEYS = ("trainable_name", EXPERIMENT_TAG, TRIAL_ID)
DEFAULT_RESULT_KEYS = (TRAINING_ITERATION, TIME_TOTAL_S, MEAN_ACCURACY, MEAN_LOSS)
AUTO_RESULT_KEYS = (
    *(TRAINING_ITERATION, TIME_TOTAL_S, EPISODES_TOTAL, TIMESTEPS_TOTAL, NODE_IP, HOSTNAME, PID, TIME_THIS_ITER_S),
    *("date", TIMESTAMP, "time_since_restore", "iterations_since_restore"),
    *("timesteps_since_restore", "config"),
)
"""Names of values that reports have beside those of the program."""
