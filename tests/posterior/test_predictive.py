def test_a_prediction_is_at_no_distance_from_itself():
    mean = np.random.default_rng(0).normal(1e3, 1.0, size=(20, 5, 1)).astype(np.float32)
    predictive = px.NormalPredictive(px.Normal(scale=0.7), mean, {})
    np.testing.assert_array_equal(predictive.distance(predictive), 0.0)
