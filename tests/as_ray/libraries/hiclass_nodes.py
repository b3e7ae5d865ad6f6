"""hiclass: a classifier for each node of a hierarchy, fitted in tasks, beside one process."""

import numpy as np
from hiclass import LocalClassifierPerParentNode
from sklearn.tree import DecisionTreeClassifier

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
y = np.array([["left", "low" if b < 0 else "high"] if a < 0 else ["right", "near" if b < 1 else "far"] for a, b in X])


def predicted(jobs):
    model = LocalClassifierPerParentNode(DecisionTreeClassifier(random_state=0), n_jobs=jobs)
    return model.fit(X, y).predict(X)


many = predicted(2)
print((many == predicted(1)).all(), (many == y).mean())
