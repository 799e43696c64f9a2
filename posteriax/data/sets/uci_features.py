"""The columns of the UCI regression sets, in the order of their files, as the repository describes them."""

FEATURES: dict[str, tuple[str, ...]] = {
    "boston": (
        *("crime rate", "large lots", "industry", "by the river", "nitric oxides", "rooms", "built before 1940"),
        *("distance to work", "access to highways", "tax rate", "pupils per teacher", "B", "lower status"),
    ),
    "concrete": (
        *("cement", "blast furnace slag", "fly ash", "water", "superplasticizer", "coarse aggregate"),
        *("fine aggregate", "age"),
    ),
    "energy": (
        *("relative compactness", "surface area", "wall area", "roof area", "overall height", "orientation"),
        *("glazing area", "glazing area distribution"),
    ),
    "kin8nm": tuple(f"theta{i}" for i in range(1, 9)),
    "naval": (
        *("lever position", "ship speed", "turbine shaft torque", "turbine revolutions", "generator revolutions"),
        *("starboard propeller torque", "port propeller torque", "turbine exit temperature"),
        *("compressor inlet temperature", "compressor outlet temperature", "turbine exit pressure"),
        *("compressor inlet pressure", "compressor outlet pressure", "exhaust pressure"),
        *("turbine injection control", "fuel flow"),
    ),
    "power": ("temperature", "exhaust vacuum", "ambient pressure", "relative humidity"),
    "protein": tuple(f"F{i}" for i in range(1, 10)),
    "wine": (
        *("fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "free sulfur dioxide"),
        *("total sulfur dioxide", "density", "pH", "sulphates", "alcohol"),
    ),
    "yacht": (
        *("centre of buoyancy", "prismatic coefficient", "length-displacement ratio", "beam-draught ratio"),
        *("length-beam ratio", "Froude number"),
    ),
}
