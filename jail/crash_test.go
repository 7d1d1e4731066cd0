package jail

const crashEnv = "POSTERN_TEST_LAUNCHER"

func crash() {}
