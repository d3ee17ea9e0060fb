"""Fits the braking distance of a car as a quadratic function of its speed, by plain gradient descent."""

import torch

SPEED = torch.tensor([20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0])
METRES = torch.tensor([3.1, 6.4, 11.5, 17.2, 25.6, 34.0, 45.1, 57.3, 70.4])


def predict(parameters, speed):
    a, b, c = parameters
    return a * speed**2 + b * speed + c


def error(parameters):
    return torch.mean((predict(parameters, SPEED) - METRES) ** 2)


def descend(parameters, rate):
    loss = error(parameters)
    loss.backward()
    with torch.no_grad():
        for parameter in parameters:
            parameter -= rate * parameter.grad
            parameter.grad = None
    return loss.item()


if __name__ == "__main__":
    parameters = [torch.zeros((), requires_grad=True) for _ in range(3)]
    for step in range(14):
        loss = descend(parameters, rate=1e-5)
        print(f"step {step:2d}  error {loss:.4g}  a = {parameters[0].item():.4g}")
