"""EvoTorch: a search with the population evaluated by two actors."""

import logging

import torch
from evotorch import Problem
from evotorch.algorithms import SNES

logging.disable(logging.INFO)  # its messages go to standard output


def sphere(x: torch.Tensor) -> torch.Tensor:
    return torch.sum(x**2, dim=-1)


def main():
    torch.manual_seed(1)
    problem = Problem("min", sphere, solution_length=10, initial_bounds=(-5, 5), vectorized=True, num_actors=2)
    searcher = SNES(problem, stdev_init=2.0, popsize=40)
    searcher.run(150)
    print(len(problem.actors), float(searcher.status["best_eval"]) < 1e-3)


if __name__ == "__main__":
    main()
