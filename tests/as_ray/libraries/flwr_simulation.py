"""Flower: three rounds of federated averaging with clients of `run_simulation` in actors."""

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation


class Client(NumPyClient):
    def __init__(self, number):
        self.number = number

    def fit(self, parameters, config):
        return [parameters[0] + self.number], 10, {}

    def evaluate(self, parameters, config):
        return float(parameters[0][0]), 10, {}


def client_fn(context):
    return Client(int(context.node_config["partition-id"])).to_client()


class Strategy(FedAvg):
    def aggregate_fit(self, *args):
        parameters, metrics = super().aggregate_fit(*args)
        print(args[0], parameters_to_ndarrays(parameters)[0].tolist())
        return parameters, metrics


def server_fn(context):
    strategy = Strategy(
        min_fit_clients=4,
        min_available_clients=4,
        fraction_evaluate=0.0,
        initial_parameters=ndarrays_to_parameters([np.zeros(2)]),
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=3))


def main():
    run_simulation(
        ServerApp(server_fn=server_fn),
        ClientApp(client_fn=client_fn),
        num_supernodes=4,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
