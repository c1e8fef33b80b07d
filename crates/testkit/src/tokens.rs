//! A token of every kind in the table, as its service documents or shows it, with letters of our own. Each is in two
//! pieces, so that no scanner takes this file for a leak.

pub const EXAMPLES: &[(&str, &str)] = &[
    (
        "anthropic-key",
        concat!(
            "sk-",
            "ant-api03-fWvZEHe_EJvd557moScsMGErB1MzNzmeEhVZ86xeql6rN2-JdC0bjQRHzDX2JDcel_wYzfi0P-",
            "WAFky8CUQQL5h4t4SupAA",
        ),
    ),
    (
        "anthropic-key",
        concat!(
            "sk-",
            "ant-admin01-qhzJPE8zJEKNVXIineJHhK6IUY2BxuJXGSiaUYMA6Qm_vMarJIs7TYhiyAnGJafY8DuRppTg",
            "mRhXs5FByos0bD97_JGEZAA",
        ),
    ),
    ("openai-key", concat!("sk-", "proj-abcdEFGH1234ijklMNOP5678qrstUVWX9012")),
    ("openai-key", concat!("sk-", "svcacct-HNURqsL4pijQZuc8BW1Ir1JO0w3nmcuwnLPhRYhpFsYWv3D5GKddA8e1k2-f")),
    ("openai-key", concat!("sk-", "admin-96dDRV4fBAGbqKLpnxPQ72pWxslHwLmr7F_N5ZYhES9BREzccoF2yUx6EzDz")),
    ("openai-key", concat!("sk-", "LU8emzJypDwyCYoBQ7poT3BlbkFJWCdTG9bYWg4lkq1e6oTT")),
    ("openai-key", concat!("sk-", "None-96dDRV4fBAGbqKLpnxPQ72pWxslHwLmr7F_N5ZYhES9BREzc")),
    (
        "openrouter-key",
        concat!("sk-", "or-v1-d8cb124b5708cd021163c992d3d9a27db734f9756a49f36c08180ab345b2fd03"),
    ),
    ("langfuse-key", concat!("sk-", "lf-16819b3f-2a0a-d4c4-c955-1583bf5fe017")),
    ("openai-key", concat!("ses", "s-eRqhqWJYAXeRpzds3mOjAqnJcXKV5NDk0MEgr0Vr")),
    ("firecrawl-key", concat!("fc-", "c20172de3d4a5152cdffc0268bbc9387")),
    ("jina-key", concat!("jin", "a_abb50cd107d1c6375281d8fb1eb6a9efs92eP9Kd7jXLMxvO6mA8R6xzVLPy")),
    ("twilio-key", concat!("SK0", "173b40a837ffb8e5e918ae69800048d")),
    ("shippo-token", concat!("shi", "ppo_live_476df181dd2c6bbc504012d6c3b698f36c72dba2")),
    ("mollie-key", concat!("liv", "e_rVJrFuTTsLwrqo7bXLBNfncfLDqmVd")),
    ("lob-key", concat!("liv", "e_7a370bb86d974a5ec7ee17dce139b0afb95")),
    ("gocardless-token", concat!("liv", "e_IeOziIQfCbzXSa7om-SY03y5mUJIQp_C1qmyyYab")),
    (
        "packagist-token",
        concat!("pac", "kagist_ort_8adcfcc5568381b949609105656965903bf6e304cf9ebcd0804fb3dcb24b173d2107"),
    ),
    (
        "infisical-token",
        concat!(
            "st.",
            "0307f6eada7c2a1b493f4806.73fdacaacfa6b27ac84e88ad33f5b48c.a9bbae25c6abb49aac1a2385f295e792"
        ),
    ),
    ("google-api-key", concat!("AIz", "aSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe")),
    ("google-api-key", concat!("AQ.", "Ab8RN6DE4_V4IErhhGOHqVp5Nh_3cVgsFOIDCZBYTZFWGdQ2Od")),
    ("groq-key", concat!("gsk", "_smdW6IdJ6Yc0EQNSk9CvECzxLb6w728vh1CDdPFdBY3I8YNSAuI4")),
    (
        "xai-key",
        concat!("xai", "-PNrQCX4QexW5FQPiorRqtA3U5bOCMfHWcfJFTKO71RJgEcFdFDs2oupmHRgMzwEOzR4u6MrM0TFXHQKW"),
    ),
    ("huggingface-token", concat!("hf_", "yfwWmmsOuYEoPNNDCpUIsCMgRaDRxnDkeH")),
    ("huggingface-token", concat!("api", "_org_bMtiMtIaGzatXIdCDJckLakHSgnIUhiOVz")),
    ("replicate-token", concat!("r8_", "sInBz7U3naNFeAb324nBvznl2XNVUrQI0Ajbu")),
    ("perplexity-key", concat!("ppl", "x-Rj6tJB0fMPtNu5LN7eAniy2gyeD0A0zZaMBUxZEKsC6dVaQc")),
    ("fireworks-key", concat!("fw_", "aOhWiEeTf27dk1u3N6vE03C4")),
    ("cerebras-key", concat!("csk", "-qnyhnkwlhbmh1byjg1o2hdewar6xyww3yi0fcqu8i0hnjqm7")),
    ("nvidia-key", concat!("nva", "pi-2t_bzZDdsVE2PElOMbLgzQ50o1cn8r57qwp_Uvaw0n5NcYg5R2858wIFAT9SPnSX")),
    ("langsmith-key", concat!("lsv", "2_pt_95b549b2273ddd86fd6e48b22300dfc2_d724380791")),
    ("tavily-key", concat!("tvl", "y-EXcAtX0mLe2eB2EKzan15zV4ua4Vt300")),
    ("tavily-key", concat!("tvl", "y-dev-GkTiCQ8XnrzZOkixnqREtJVvHeg1XalU")),
    (
        "wandb-key",
        concat!("wan", "db_v1_dyf6AHDWyPsa25CSsdqj4TcCz1YpLQ5VpYzwpR5DbjkjQZCDjuWfUDEf6Q5Lu9rOG93xQmEryt8sW"),
    ),
    ("together-key", concat!("tgp", "_v1_rPOahI55CdSeLKaknB4B1vEotRsYzlInFG5sZ7pVHJs")),
    ("cursor-key", concat!("crs", "r_820fe69a7ae81456e72528295161c7b944d475a07a9119d3a654fe601b9ba5af")),
    ("elevenlabs-key", concat!("sk_", "05697e67c38e8b6dfda1b17dedf65f8f53caa83038534e3c")),
    (
        "pinecone-key",
        concat!("pcs", "k_NeJ2KP_0ltCME4xS0T4jMQMrZaeaqFiUcPGIy8F4mQlWF32eRrw8WKOLQVO9RLj1TBtFCC"),
    ),
    ("aws-access-key", concat!("AK", "IAIOSFODNN7EXAMPLE")),
    ("aws-access-key", concat!("AS", "IA1LB6BB11KKN8YX56")),
    ("aws-access-key", concat!("AB", "IATI0DQRW2ACZQIICF")),
    ("aws-access-key", concat!("AC", "CA8BUB57WHD6SORD52")),
    (
        "aws-bedrock-key",
        concat!(
            "ABS",
            "KQmVkcm9ja0FQSUtleS1m0Ao0BUpXtRYyUcPhTCX7ke3fhg3QrwBACPtu7EWIMUQzx00m6U2NMRSHKy3XXPz",
            "sf4SgHAbnx4PdBcEZtMnkpWcbjF1pyqKJWlhfzO3BZsdnS=",
        ),
    ),
    (
        "aws-session-token",
        concat!(
            "IQo",
            "Jb3JpZ2luX2VjXgcdO/k9anmyDP2STxJrd+Zi2/qhv4w7aMI8wKaXGwdCgw69vp7LQcG9LorKduP8vNUtVv5",
            "85deugFLCV6+m4RsepPuPTbQUBq9muDuEULioZy3xQi47dW6399ZxVR/3V8FUBvqww1emKonL53ZLQ5C95ZK",
            "1MiJOEClCVFkrhJI+Th3mt82E55/BhQ7T7iRZ6gFmbbsbsX2lXdFZRu2TgZKox9cg3zgqOYH2xjsGmGD7Buh",
            "GFZnj+gnbTrPKpPIn9+YwoskzBw0Zfg7wQrPfEsPp==",
        ),
    ),
    ("google-client-secret", concat!("GOC", "SPX-EfMEKCWnO9s5-yrHzKE6oo8sKDEX")),
    (
        "google-oauth-token",
        concat!(
            "ya2",
            "9.a0AFCVDqQDRlzZ7SYkhIkQMOJBv4iE7tGG4U4iDoWdyrGzOHXhUZTXAC1cs-25MA-sOeF74ZFIJMfvqzYW",
            "BtaAa3m70mLrhDhlswLSm4gUP3FQHbi43dQdjkBLt4VY2O4Nid_J1sLbmEUNl",
        ),
    ),
    (
        "google-refresh-token",
        concat!(
            "1//",
            "0gws19tiV1ZFyM4AqRJ2Ug0KXKLBYV0mhGKfGRy6boTyvymI-SLtpLK75FVd2kqZJh60GIdACZEPoy1-AsCX",
            "bItcQlDeJP6bdn6B",
        ),
    ),
    (
        "firebase-token",
        concat!(
            "cT8",
            "2cXcqLxF:APA91bZ0qOxwUm30g2weSM-UziIr2uvXoeakj1izlsw9LRaQZ1fIFzv6itKwaYbBV3WF6usxnD7",
            "uOtc810YOJPaEZeAXywGiwZgZQa4QEW6ePxWenUS0Vh8ooCuJXpSWZkHBTQET1gkr",
        ),
    ),
    ("azure-client-secret", concat!("Mo5", "8Q~fW89mmKGjuuAWgRCjNAjje1t-xoMX7focr")),
    (
        "azure-key",
        concat!("gxh", "vS8gk8wG8w7O4AIC2SskDoxp2ALrijsN2uaTsFPZtBTNhe3nqJQQJ99rKqJywBJtWmiQerRMzmkNQRmue"),
    ),
    ("azure-sas", concat!("sig", "=AbvzbJ3MOPqi7DqW7jYOqZCcmvCWzIvmhWUCLPHqBKO%3D")),
    (
        "azure-devops-token",
        concat!("m29", "9MEUY4h3AO3tGWoLlEWyiglvUSCtbz1KxDYlT0Wko7AkPa8pNRpZSbSl7QnYc12pLvGfQzMksAZDObp4E"),
    ),
    ("alibaba-access-key", concat!("LTA", "I5tgIUk0GOiWIrOrG13zu")),
    ("alibaba-access-key", concat!("LT", "AIJmSU5z01N16a")),
    ("tencent-secret-id", concat!("AKI", "DxIENv4tYhtw8Zx9U6p6d54UCL90ohpju")),
    (
        "digitalocean-token",
        concat!("dop", "_v1_fa2a8a8b9309ba946fa2429816803b4b4401e4e36c3170ae1d9799eaa07b064e"),
    ),
    (
        "digitalocean-token",
        concat!("doo", "_v1_0ae6025bebce375adfdebd9db26edc6f1b20a39b469b4ce87fc94a214e53d0b3"),
    ),
    (
        "digitalocean-token",
        concat!("dor", "_v1_21328e9815dd9dd1cee31dcfad3cfb3a810a9200cc2b49b5c5078959c9a017dc"),
    ),
    (
        "fly-token",
        concat!(
            "fm2",
            "_GKZioLhBn0mT0J/FD7xCmW/nellVIt3DW8lX1u7VB3KK0lXeG2yQMQWJPZQJf9hUOcmXG8zNa1HOv4aJTLo",
            "OdHSCY6ET9rg0NmnrHYDyrf8rl1SS/lu4+Tiv==",
        ),
    ),
    (
        "fly-token",
        concat!(
            "fm1",
            "r_NRJ26cjQ1eBMtDFV2jpFU/AbswzcYE5jMGjiYHBK6z/H86Iua818DAWAKbL7XGRozio+BwYMu8wJOR7ToI",
            "Ek+u3YtFs766ucNknyPUw0JeFIVUDZ8TCTxWVa",
        ),
    ),
    ("fly-token", concat!("fo1", "_ssgaswqwmkcO9izXyDmPMCy_cMDAb5yIuqLysYN-64Y")),
    ("cloudflare-token", concat!("cfu", "t_YVtNoBWPrkjNzSlgmS2OTqAuP9nQqawH2xaNfnMupCpcbb92")),
    ("cloudflare-token", concat!("cfa", "t_bAB6tVmBzXOG2rhi3m3PWV7hHSkleowqf53gqzi2IbWk9S7g")),
    ("cloudflare-token", concat!("cfk", "_pbJlvHdXugJkB3hvdkqyJQvZ8Pc2ENXkjtCp5Em8fXS9yPqw")),
    ("heroku-key", concat!("HRK", "U-AAhADwsnpPCoDvJ7Q-bpSGeBzAWiOLZgDTg2a1d-ltsCzv0XEFc0yZ57aJwL")),
    ("heroku-key", concat!("HRK", "U-16957229-8d02-23f9-b559-c4538a456b37")),
    ("scaleway-key", concat!("SC", "WM297DWTNI3U5KS8AD")),
    ("vercel-token", concat!("vcp", "_ANfprtfSrMXb5662J9qiUajroQqBAZGKXaSV3vQxTRbwNimbeecal1In")),
    ("vercel-blob-token", concat!("ver", "cel_blob_rw_OTX75fCyNioD4hOm_UEsidiejCEGDn4YGs0ck8dV6E7rGxe")),
    ("netlify-token", concat!("nfp", "_XPNHB7PK8Tv41NZeX9zqNQPM2GzoHDpj9ayI")),
    ("openshift-token", concat!("sha", "256~jKwpBwcd33tqVK2GGoQtf79u58J6PiC-2n61uf6hapL")),
    (
        "swarm-token",
        concat!("SWM", "TKN-1-r47d072cdtbjic1pza5ozhivh599pr0all1siapr1m36d54jfr-mbs23dee6l1e2ygqcn5agqx0b"),
    ),
    ("tailscale-key", concat!("tsk", "ey-auth-ku3XOejusmJCNTRL-JhbOlLt88Lf1uznJCAXnhuCeVLlfgXxy")),
    ("tailscale-key", concat!("tsk", "ey-api-kJI4pYPQvofCNTRL-3cekSjOouoecCGz87JJWt5B4kfEhoAkv")),
    ("github-token", concat!("ghp", "_2IMbmeqoqRB3Ful1D3KxbQzAp1A6LjsPn9ds")),
    ("github-token", concat!("gho", "_qQ48pwnzpvhyV5dOPME2UYVuzqOsppSfCHE7")),
    ("github-token", concat!("ghu", "_jWAR7ayzsgY1vVT7QYZlk4urwAhu1hMzxmEX")),
    ("github-token", concat!("ghs", "_p46jQysVoHSgcBUF77kWVjMLVYmjA6U1XPyK")),
    (
        "github-token",
        concat!(
            "ghs",
            "_123456_eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxMjM0NTYiLCJleHAiOjE3NjM1MDAwMDB9.q7Xc-R2vN_8wLkTz4bY1mH",
        ),
    ),
    (
        "github-token",
        concat!("ghr", "_B33y5Ul3uG8aEEUmsPdC9ffVf8eOhS1tOjW9YT0lvhcu3xGFP6QPSioo5CfbaFYqpq4De41Ebeu5"),
    ),
    (
        "github-token",
        concat!(
            "github",
            "_pat_6CXCkGrJGxdfk9oKZuQqlx_xUVwMjkXqpkfgTIFNmeULdRukfZOTcS7DYHgb6HqW7ev2DUvlIT3eJzD",
            "ffn",
        ),
    ),
    ("gitlab-token", concat!("glp", "at-z_sxgtrfAxKr8q1TPY8Y")),
    ("gitlab-token", concat!("glp", "at-EoQPdt4MhAVi8O1pmEFWiAMsjV7.01.larj4uvq9")),
    ("gitlab-token", concat!("glr", "t-n_bYsVWlMv-3DnHcve3X")),
    ("gitlab-token", concat!("gld", "t-Vj_V8kls_nK5cBEqX0yi")),
    ("gitlab-token", concat!("glc", "bt-64_sdhqHE4B6-gy_IKFMRUH")),
    ("gitlab-token", concat!("glp", "tt-d46999403f35ca9a935c14c2e83f88ace6475d50")),
    ("gitlab-token", concat!("glf", "t-8aMx4RdU-e8YZNJBUTD3")),
    ("gitlab-token", concat!("gla", "gent-9TEOOtDeIwaFttEv00fGi2CXvCP0z6kN9mkaMYe15yjmQjpWOr")),
    ("gitlab-token", concat!("GR1", "348941y5gxCBa-0WXSlRDS3LA5")),
    ("bitbucket-token", concat!("ATB", "BYPdGNJWE98YtKsMIzTtZXVsPVuyqJGAS")),
    (
        "atlassian-token",
        concat!(
            "ATA",
            "TT3xFfGF0Nk_bC4XDMhlUsP8APmPlAHOMOx7xZKcWOGUadd-rQ8m38eyPq_mgtYw7bpmsJOm0TaSWbvwfBJ-",
            "H5fkwt8tzJC1xfTUczzoCl0_MqRjf4dfmZqsUzW8QByEgbSmHoJqeXLq8ydFGb13xMbWOFj5socceOKI9gY7",
            "1_x6W_Rys7K=0A1B2C3D",
        ),
    ),
    (
        "atlassian-token",
        concat!(
            "ATC",
            "TT3xFfGN0q7gqHTNE1IGt8JTHMHLlcvG61D3j83cMwgnJp7EVSiwvY03D509ybhLAqjVEWke6mNx1oDeCNTT",
            "ukrgvFIUUIXmdlecEYalHh636pnjZxqzptbNqs6qqAvaCL1utTL2_aahXvHi1YByy1ZWXgijgdVvg1O0kDaR",
            "OpOYkml19nJ=0A1B2C3D",
        ),
    ),
    ("sourcegraph-token", concat!("sgp", "_bc73c47fccd90188_9902db1b1f76b2476046e60abb2f61defc4e67bf")),
    ("circleci-token", concat!("CCI", "PAT_VKRWiuloE9tgkf25EUm54a_6a72cee5a714c9f4fec6b1cf197037e3b40c73d7")),
    ("circleci-token", concat!("CCI", "PRJ_j8pMx0CAmg1jzHpD1lnWAn_b7d78a86d35c31f71bac170ab6e3c1d4c3fece7c")),
    ("buildkite-token", concat!("bku", "a_1942f30d70f5eeec52a8f0c4e4aec6967f04bf3e")),
    (
        "terraform-token",
        concat!(
            "UWb",
            "kdspngNeuOp.atlasv1.LJCplkPCdNAuaIqVfLYj75RLH5Slmq7NzgPz3kx8JKzTzRZwe4TF9l5tJc9O1bi4",
            "x0W",
        ),
    ),
    ("pulumi-token", concat!("pul", "-7d553e634ee709cacb83e8c1deec49d1d9203634")),
    ("infracost-key", concat!("ico", "-Hhdu2StWAwkRuP33EF7FAeHI1KFxN5A7")),
    ("prefect-key", concat!("pnu", "_Tvv126jcEZQU9O2qhfMrYfNmir6g0vLDAhbD")),
    ("sonar-token", concat!("sqp", "_cc1f26867c4a71d04aa13ce2bf929b437b7eab2e")),
    ("sonar-token", concat!("squ", "_ddb62f7e37c7bfbebe03dc3b2bb95f77f229e0ef")),
    ("jfrog-token", concat!("AKC", "p8RuYNxmXqbi0IXCVJLbU4yf4G9W9P7dDA9vlHDw7qJmi6lQW081zTVENjiqpF93HkSNxm")),
    ("jfrog-token", concat!("cmV", "mdGtuMYAmrot7mX0XE3nFlGg0HcYKPwiONSTH4ZHpxBNbfjvqTx0m0tKgbGXZ")),
    ("slack-token", concat!("xox", "b-832580662726-8715930716799-L69awzjgXgX8detvTBDMOX0d")),
    (
        "slack-token",
        concat!("xox", "p-969415793534-508362522918-7703709245540-9a2c20d7c494f49339bda78d3b8fdebe"),
    ),
    (
        "slack-token",
        concat!(
            "xap",
            "p-1-AXF9UAYPE76-5048702757543-77222ee0abdf4a744da710b2389dc201589f002bf569c32cf0cd25",
            "04f4284a14",
        ),
    ),
    (
        "slack-token",
        concat!(
            "xox",
            "e.xoxp-1-Ifx4xA7IeGZcVkylAfxDRsBtqcl067TmFKk6nDRSlYWo5SCESoi3KVlFOMU1VSzl6NxFgtjWnQu",
            "cIwcwvG78ecsR8AjctCsb9Xlt8atLFnRGgJMHQUZVfMm6evw5Z7Y7Z1ENHfSKE1kU",
        ),
    ),
    ("slack-webhook", concat!("hoo", "ks.slack.com/services/TT4X6TY23/BO90Q0DQU/aiwqV7W8kYg7JFobeeCdSN90")),
    (
        "discord-webhook",
        concat!(
            "dis",
            "cord.com/api/v10/webhooks/1187302767270697712/Kw3vTnB8yQ_x2LmRcZ7dHs5jPgUfEa-1oViXtNqYb6",
            "MkWzJr4hGpCuDl9SeAf0OyIB",
        ),
    ),
    (
        "discord-webhook",
        concat!(
            "dis",
            "cord.com/api/webhooks/704302767270697700/oRA5SEHn7T_wzHIUPMFWbahwXdDmcOmOEhplqaUDdRk",
            "JSkePHE_WG3tvgbfHRO_DPRUZ",
        ),
    ),
    (
        "teams-webhook",
        concat!(
            "web",
            "hook.office.com/webhookb2/3449e58d-c6cd-b693-bfcf-44ffa80c8239@25a022db-f8f1-7d45-ae",
            "ce-0717731b7932/IncomingWebhook/eb4d9ac88b3af31ea9b84b10080b8f12/b40d9314-0042-6e47-",
            "0ff9-9502f0b23d25",
        ),
    ),
    ("telegram-token", concat!("110201543", ":AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawx")),
    ("telegram-token", concat!("123456", ":ABC-DEF1234ghIkl-zyx57W2v1u123ew11")),
    ("telegram-token", concat!("/bot", "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawX")),
    (
        "facebook-token",
        concat!(
            "EAA",
            "DZBq8ZCvR2mYBAKx1ZBfT7uL4nWc9sQdHjE0oPzXgVi6rMtKyAwU3bNlFeGqJxSkCvDhZAmTzPoRiLuWnYbEcXfQgHjKsVt",
            "MpNrOaUdIwZBeZCyTlQkXvGhJmS",
        ),
    ),
    (
        "facebook-token",
        concat!(
            "EAA",
            "Bm8ZquztuolGWvdhIePyiaIXfDB8NX0T9O0SB7U9dWHBY3z1h2hRm4p1EKAaNtPwjIPTUY0QhV4O4ISgwYdU",
            "Q04tHKR0x9yV4cha9D8fajvFjRhz4hwE4h29X5f4hWodpHFWxBxgpfPJgfxxmsHgOr8v10lT44KUU",
        ),
    ),
    ("stripe-key", concat!("sk_", "live_y1lU9eGmBby38Dq805Lyg7fa")),
    (
        "stripe-key",
        concat!(
            "sk_",
            "test_13mNT86w31Fm9cLSsalOH7fJmuxMDt1Bb0ZjfV1JaNYa9CDo4EuzXFBomnECvgYQLE6MQ018rnB94Wr",
            "03w93qv7pF1bo5iem18C",
        ),
    ),
    ("stripe-key", concat!("rk_", "live_FY5Ma5dQevcOgL53ws6b81Am")),
    ("stripe-webhook-secret", concat!("whs", "ec_5hFnxtIAydiT9V8mOgRAl2L1LR4YHqpI")),
    ("square-token", concat!("sq0", "atp-5cudvCSM8MYYrJ48KvGGdl")),
    ("square-token", concat!("sq0", "csp-iZS4mGhNU9fN7fgy-ys0emRXGCB4fPwCSZVKlSjdIAz")),
    ("square-token", concat!("EAA", "AQP1xjBup6yJQ7FUyJjg51p8fkcLskbh5i6r4Saner3OrqdH8Y1wQhwahdTdl")),
    (
        "braintree-token",
        concat!("acc", "ess_token$production$qyfk99u018mf1ek9$bee70c49b77b5922b320bfde60aa52b4"),
    ),
    ("shopify-token", concat!("shp", "at_f8346fe1bf84d8efb2dba0a95260d9c6")),
    ("shopify-token", concat!("shp", "ss_987cfdebd8aa5846d425a0c48c1febd8")),
    ("shopify-token", concat!("shp", "ca_9a822e9306a10992fd44dfff375ab7c7")),
    ("shopify-token", concat!("shp", "pa_310dd3815dd0dfec35eb14ac787e0f91")),
    ("flutterwave-key", concat!("FLW", "SECK_TEST-46218cd4d90b7d39220ae6fdf7a99b2b-X")),
    ("plaid-token", concat!("acc", "ess-production-6a74a28b-abdc-c901-a945-60b2525eef57")),
    ("duffel-token", concat!("duf", "fel_test_vZizDm0ySXSKt_jf4MXigp9zXzDdzP9qw62POGanLG7")),
    ("easypost-key", concat!("EZA", "KsiLpDbtcWtCCBQgY86rCDOdKYnew3InYts9lp7CgFSNYZIJf2qfip2")),
    ("sendgrid-key", concat!("SG.", "ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr")),
    ("mailgun-key", concat!("key", "-2ecd1d8267a2e0cf724dab3c0d7888fd")),
    ("mailgun-key", concat!("key", "-3ax6xnjp29jd6fds4gc373sgvjxteol0")),
    (
        "brevo-key",
        concat!(
            "xke",
            "ysib-60fe67281a66b4ed7a343579bad36c81a7a7c6c1ffa9ed4eda1a2e8e8332eda1-5UYXhgsECmcEcY",
            "vC",
        ),
    ),
    ("resend-key", concat!("re_", "CFdCbjOx_czLLHGc8uVpeR6Vpe0Rq1gCv")),
    ("mailchimp-key", concat!("6e9", "db9adb903791f167c6a2843094e4c-us12")),
    ("npm-token", concat!("npm", "_s1nZ7y8V1tPzJMHG7xWHYBCWFGA55NMHfwTv")),
    (
        "pypi-token",
        concat!(
            "pyp",
            "i-AgEIcHlwaS5vcmcb2hwfrPCuN5nzqHkO7Lp1QilrpluMV-qTv-TsTmyca_57bi92qipnavulAbkA5rkxqv",
            "Tq6127Kfc1tde_24kSO022m5zI79KKmlAB882yxCzbPeGzdtPR45Ys2jO3eZ5cfoNbDQjehjl",
        ),
    ),
    ("rubygems-key", concat!("rub", "ygems_71a7757df4584dda511649c66e9fca4d328e7fa0bdc990ba")),
    ("docker-token", concat!("dck", "r_pat_GKveSdGZ-1_H8-_ITD7EnTnQcl5")),
    ("docker-token", concat!("dck", "r_oat_rTVXwXNN1btD5Ihcn01RNRVRgzGa6Hrv")),
    ("crates-io-token", concat!("cio", "UgOEgi0XDiNclbXnzaCETfEJjp84h5WV")),
    ("nuget-key", concat!("oy2", "xmdlwse6ek9cw1ezav0ciajvorc0vhfx6vsaiu1mjhg")),
    ("clojars-token", concat!("CLO", "JARS_92a59570c238996b9816bd731c24c4e704309a8558c7da001f554f5a89e0")),
    ("deno-token", concat!("ddp", "_zMkaxsB406GuqLJGnpTCMuUgZIT4NZv4RGf2")),
    ("planetscale-token", concat!("psc", "ale_tkn_w9shtU04npxuHqynQ3vyH-ccX7cGAHBxRHDas5k8IJ3")),
    ("planetscale-token", concat!("psc", "ale_pw_Zyyzmv0P3PsZzx-eofoGTvbd71b9Yy7bnK4bcu13xJS")),
    ("supabase-key", concat!("sbp", "_1b5d9137d25a5713fbc372a2d6bad7d63c7c0f2e")),
    ("supabase-key", concat!("sb_", "secret_g0tze00FDa-07SGyx8rM3r_u07bIAUk")),
    ("neon-key", concat!("nap", "i_jeoa0uoapqnxgt9neg40o7t7zjyxtovp6cupprkok45swxt619r136p6wsiis6t0")),
    ("mongodb-secret", concat!("mdb", "_sa_sk_qxGTyC3LZBPKNQbOcc4bfsShI1ptyQv7W-7MK3jR")),
    ("databricks-token", concat!("dap", "icb1b8580bfc4b4432905bf385f4ce641")),
    ("cockroachdb-key", concat!("CCD", "B1_cp8bRkP1J8SRwfAHayWnmR_O7yrE1VzKN6tE9gkIK8yEbutrMq1Y6ogOVih6eGZ")),
    ("newrelic-key", concat!("NRA", "K-VR8HBOXPJ2D0V39XQM4RKSA3MTY")),
    ("newrelic-key", concat!("300", "aeee05cabc0e7257298466781d699d2edNRAL")),
    ("grafana-token", concat!("gls", "a_ZarCjGUSBDH2CwhAFURaLsrhGmJMujpW_c0b87444")),
    (
        "grafana-token",
        concat!(
            "glc",
            "_eyJvIjoiMTIzNDU2IiK0uxM5B+ER0ZdbhoSBDLCW2IGK036hWwx8T/tfOcjoqfOhU4zT6J8vOI8tv7kXvbc",
            "/ItBtkbFB5o1LPJihMUdszvR6hd2LYrjkHlTyPxr836ZQUwQsdDpC6f==",
        ),
    ),
    (
        "grafana-token",
        concat!(
            "eyJ",
            "rIjoixB/DH+yF6seS34TF0doqvHoM+EYo7kCuQU7erYmkRYvzHMqXrG2gaU/f0QUr4gOC9jGITfmUdjwGi4H",
            "m==",
        ),
    ),
    (
        "sentry-token",
        concat!(
            "snt",
            "rys_eyJpYXQiOjE26lZCf9SEm8B0ZSp4lQSo0at3YWTRPj3SdFcEWqOTp6a/kYCWKI7LUwdyHXsqMQJ5Znwm",
            "bVfVVu/vHCnGN3KNRtehhVwJJ8LM1EcE5/w+BSPaQ1dRsJVdV5SfBtgNkZZAubpIrCRf5Ir5=_65AlrHzkk9",
            "wYzDatWOcNyYEPMCtzZBiZ02U/veo41cZ",
        ),
    ),
    ("sentry-token", concat!("snt", "ryu_fcfdd87957ef0bf0abf9ec884c9fc94896ddecd1788a18615655a0695d494236")),
    ("honeycomb-key", concat!("hca", "ik_jxsa32sbqt5zrd29z6lr9g6dchldaxgcmlpjp22u6dojt080f6k2nv4kou")),
    ("posthog-key", concat!("phc", "_3XfYqZYUBFarRi5tXFZEPf4vZPWDaxUl2FqfxQbFsmW")),
    ("posthog-key", concat!("phx", "_Oo6Gh7764rcy8Nl2DRb45KCsPFu6i6hqmbDvpErxBaO")),
    (
        "dynatrace-token",
        concat!(
            "dt0",
            "c01.3JT4NSS9RUENB8JIPY6MN8T1.T9Z6MW7L57ZH6DUL8VOTVAXEBRVROW8AMCMYS66TTMHBN9UZF65MTJF",
            "0GGS8P0GJ",
        ),
    ),
    ("launchdarkly-key", concat!("sdk", "-5f8c0f5e-6a0a-0b6b-c445-6e06056b7ffb")),
    ("launchdarkly-key", concat!("api", "-346c59dc-68bf-a0b6-e3f3-42678f3c4432")),
    (
        "vault-token",
        concat!(
            "hvs",
            ".CAESV8cuFfXk7e2WzPwOjc67QIkmeCyZkMfaeXGFnFsjYanwq4b5NJ4WBkPfgLZ_f-OLmCf5BpNhDtD8KFu",
            "6xO69YBA",
        ),
    ),
    (
        "vault-token",
        concat!(
            "hvb",
            ".AAAAAQSvFacq5QJa-xY8MEh-vg6A0Iuaic9EDJf5_P2M0aUPprSXF65rnIuZIpSbl2YLQpUcQSdPqdhlaOi",
            "37iaIQHqCvLPSxTaFN3o-ZzCWbzBPTTyqgRLzQC-sXPETBeA0Hcra",
        ),
    ),
    (
        "vault-token",
        concat!(
            "hvr",
            ".DVq4hu0VFO6G5z4-xLApi5QjrZbua6OZzG6z3v4jd97uU5K9zEjuqkZnNQiENjG_llmKiJBDIhwgDxIXU6x",
            "T42Pps7",
        ),
    ),
    ("doppler-token", concat!("dp.", "pt.1btORBk2pW3NS5FwwC1uUXrk4iThvyLLV46SofanAba")),
    ("doppler-token", concat!("dp.", "st.prd.Z31adwoEwubgeBqgTJ9200n5O1u4CwCZvuJMixjePtQ")),
    (
        "1password-token",
        concat!(
            "ops",
            "_eyJn60EOQ2IZvmCoTQaQ2UwRek9rJUiNfU8MLdWzTfHlg7hrx/lvaD1hbImtNlKl3W/7KtY5+jKrhDh6FeU",
            "3HEiOOawIO8f6at4scXYuNJqx/PgHkm8vwGxiOA5FH73zHBleMthns2f1qYV7bgFzLScIoEJIdMqvQ/9AAFH",
            "/3TbQEooS/Mhg1uVE36JTgmyKyvflQAV1DOXxZq/dv/Y8bcIup2/s4NcukUOGDvRso++7DryyzPN",
        ),
    ),
    ("age-key", concat!("AGE", "-SECRET-KEY-1TVD60FQX862RW9SIRETK0QRBE7HM3ARKX67CRK0O4HWC5920G3DHN5KT7T")),
    ("okta-token", concat!("SSW", "S 00HCFnlQSRZ01NzDDluQMRZ4zsfvaCXqOpt9FOsoaq")),
    ("postman-key", concat!("PMA", "K-ab16fac742bd372d0094f48d-3073c7c713eb97293082c7b45952012c1d")),
    ("linear-key", concat!("lin", "_api_SV4jMt7op9XcM0CGSa6BVQEvtcZ0qreqQW9JVTZz")),
    ("notion-token", concat!("ntn", "_9SxsuEjSixiH4KiEamCxV3iX7xMxBJ65nCZtglsihrOGxd")),
    ("notion-token", concat!("sec", "ret_jfS7Ml8bo1Fk5qSWa8lD7aladg4DPp1UnOaLkbJVpzw")),
    ("figma-token", concat!("fig", "d_A_aVQc9c4_nfhS697Ii4C069nCFKZWAtjbstkH5QAh7")),
    (
        "airtable-token",
        concat!("pat", "tMjh7lRKyayerR.3eed57d0d85fec531d931b5a2a40512f139659f1020d7a75546b3fe2035a8238"),
    ),
    ("hubspot-token", concat!("pat", "-na1-90e1467f-28b2-21bc-d30d-e8b86784b618")),
    ("hubspot-token", concat!("pat", "-na2-5d0c1f6e-8a4b-4c1d-9e2f-7b3a6c5d4e8f")),
    ("hubspot-token", concat!("pat", "-eu1-c2b1a0f9-7e6d-4c5b-8a39-0f1e2d3c4b5a")),
    ("intercom-token", concat!("dG9", "rOjrhQnDRBGXUfotKcnhhMv0QEEi7KYIz1fD76YXuV1OkO3Xf224dvSpx=")),
    ("typeform-token", concat!("tfp", "_1qwSBaSkOUvvEzBgm6RwGAqY3eTnXzROzTKtRNgN9yza_HsuTsjF1lLQ4z4")),
    ("contentful-token", concat!("CFP", "AT-HZvjCknVHwisDpi_gr2HUk2pwcINzphbmMPaijMOhv1")),
    (
        "readme-key",
        concat!("rdm", "e_dqexhzto5luoo9d4msf5nbxq9xnopwgdwgsoputv4e22sulb0wn9dlk00oa2wjya7u1vr5"),
    ),
    ("frameio-token", concat!("fio", "-u-uMRoSyR0cD-d3P2C_QIOUPmzpRzU6CW9FL0nwXypKclqaGT9BZPCAZHmErALQX97")),
    (
        "dropbox-token",
        concat!(
            "sl.",
            "B76Ntd1lyF9r_I7wecdSacjWb4dwyBub0zAcHUpO-kFBKZq31AExGJwQrgdeVIdN7mckS52gWGH5veLORwr6",
            "fyhLFiDxkq6o0-lFEW59_dhPnImGVD4hC0hBv-ot4v52hn6pLoSy",
        ),
    ),
    (
        "mapbox-token",
        concat!(
            "sk.",
            "eyJdTK6OhfchaboeM2lq2m7XsLBC6dpaWbMCrPHHrKGojvkcw6lZIaDUAONml1UFZRiI4xXG9JssKcGUtmA.",
            "C5raNA5ATV9UzD3SfOU0YT",
        ),
    ),
    ("adafruit-key", concat!("aio", "_gO0wQhsx1FaGtxM42vufqXWU4b4Z")),
    ("apify-token", concat!("api", "fy_api_jzThHKsOCTPDM7qK5hXbGeK70juy1lu1XSXU")),
    (
        "jwt",
        concat!(
            "eyJ",
            "hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIi",
            "wiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        ),
    ),
    (
        "jwe",
        concat!(
            "eyJ",
            "hbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.PKq7bXzT0vLw3nRjY5mHdE9sUoC1aFgI2kQx8WtB",
            "y4Zp.mR3vK8xQ2nLw5TzA.hJ7dS0fG4kP9.xY6uB1cE8oI3aN5qVtW2ZQ",
        ),
    ),
    // The key of its content is agreed upon, so its second part is empty.
    (
        "jwe",
        concat!(
            "eyJ",
            "hbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0..mR3vK8xQ2nLw5TzA.hJ7dS0fG4kP9.xY6uB1cE8oI3aN5qVtW2ZQ",
        ),
    ),
];

/// A private key's block of five lines, and its lines.
pub fn key_block(label: &str) -> (String, Vec<String>) {
    let lines: Vec<String> = (0..5).map(|n| format!("{n}kA9/zQ+").repeat(8)).collect();
    (format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n")), lines)
}
