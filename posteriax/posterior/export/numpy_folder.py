CODE = "predict.py"


def write(program, about, path):
    raise NotImplementedError
